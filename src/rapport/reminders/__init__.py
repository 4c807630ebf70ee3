"""Reminders: what a person asks to be told at a time. They are never mixed with follow-ups, which the agent infers."""

"""Decide who calls, from where, and how often."""

"""Conversations: created, listed, counted and erased."""

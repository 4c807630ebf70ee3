"""Test the pure rules that select and render the context of a conversation."""

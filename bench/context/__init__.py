"""Measure and train the selection of context in group chats, on chats that people have annotated (inputs.py)."""

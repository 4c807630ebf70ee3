"""Relevance: score which messages of a chat belong together, with a model trained on annotated chats."""

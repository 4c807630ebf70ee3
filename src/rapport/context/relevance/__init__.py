"""Relevance: score which messages of a chat belong together, with a model learned from chats that people have
untangled."""

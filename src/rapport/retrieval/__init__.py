"""Notes: read them from files, cut them into passages, embed them, and find passages for a question."""

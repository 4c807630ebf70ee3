"""Notes: read from files, cut into passages, embedded, and found again for a question."""

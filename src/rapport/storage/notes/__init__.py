"""Notes: stored, indexed and searched."""

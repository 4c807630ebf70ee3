"""Store, index and search notes."""

"""Store, change, search, summarize, import and export messages."""

"""Messages: stored, changed, searched, summarized, imported and exported."""

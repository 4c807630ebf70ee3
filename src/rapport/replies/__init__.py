"""Check a reply before it is stored."""

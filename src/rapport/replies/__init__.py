"""What is checked and decided about a reply before it is stored."""

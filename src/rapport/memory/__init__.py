"""What is remembered about people: where it comes from, and when it comes to mind (MEM)."""

"""Find what is remembered: the book, its routes, its commands, and the rules around it."""

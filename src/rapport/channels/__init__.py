"""The outside: parse, hand to the core, render."""

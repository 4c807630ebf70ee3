"""Test the page in a real browser, with the screen of a phone and of a desktop."""

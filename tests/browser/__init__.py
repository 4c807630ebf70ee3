"""The page as people use it: in a real browser, on a phone and on a desk."""

"""What comes in: validated, normalised, stored in one transaction, and only then acknowledged."""

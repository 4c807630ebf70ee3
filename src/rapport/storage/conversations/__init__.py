"""Create, list, count and delete conversations."""

"""Measure the cost of a turn beside a bare proxy, and the quality of what the agent finds (README.md)."""

"""Rapport: a conversation agent that keeps its promises."""

__version__ = "0.1.0"

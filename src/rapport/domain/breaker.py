"""When a conversation's model is left alone for a while (RES-3)."""

BREAKER_FAILURES = 5
"""So many failed turns in a row …"""
BREAKER_SECONDS = 120
"""… within so many seconds open the breaker, for as long again. Then one turn tries; its success closes it."""

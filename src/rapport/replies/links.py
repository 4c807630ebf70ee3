"""Decide which addresses in a reply are links: those that somebody else than the model wrote (ADR 97)."""

from __future__ import annotations

from collections.abc import Iterable

from rapport.domain.addresses import find_addresses

MAX_LINKS = 50


def find_known_addresses(reply: str, texts: Iterable[str]) -> list[str]:
    """Return the addresses in the reply that stand in one of these texts, character for character."""
    written = dict.fromkeys(address for _, address in find_addresses(reply))
    if not written:
        return []
    known = {address for text in texts if "://" in text for _, address in find_addresses(text)}
    return [address for address in written if address in known][:MAX_LINKS]

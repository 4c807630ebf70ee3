"""Find the web addresses in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ADDRESS = re.compile(r"https?://[^\s<>\"`]{1,2000}", re.IGNORECASE)
_SENTENCE_MARKS = ".,;:!?'*_~|"


def find_addresses(text: str) -> Iterator[tuple[int, str]]:
    """Yield the position of each address, and the address without the punctuation of its sentence."""
    for match in _ADDRESS.finditer(text):
        address = _trim(match[0])
        if len(address) > len("https://"):
            yield match.start(), address


def _trim(address: str) -> str:
    address = address.rstrip(_SENTENCE_MARKS)
    while address.endswith((")", "]", "}")) and address.count(address[-1]) > address.count(
        "([{"[")]}".index(address[-1])]
    ):
        address = address[:-1].rstrip(_SENTENCE_MARKS)
    return address

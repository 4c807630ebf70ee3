"""Estimate how many tokens a text has, where no provider has counted them."""

from __future__ import annotations

import re

# Each match is about one token. Tokenizers have common words of European languages as one or a few tokens; tokens of rarer
# scripts are shorter.
_PIECES = re.compile(
    r"(?!\s)[\u1100-\u1dff\u2e80-\ua71f\ua960-\uffff\U00010000-\U0010ffff]"  # CJK, Hangul, Ethiopic, emoji …: each by itself
    r"|(?=\w{25})\w{1,2}"  # in something longer than words are: base64, hashes, digits
    r"|[\u0530-\u10ff]{1,2}"  # Arabic, Hebrew, Hindi, Thai, Georgian …
    r"|[\u0370-\u052f]{1,3}"  # Greek, Cyrillic
    r"|[^\W\u0370-\u1dff]{1,6}"  # Latin letters and digits
    r"|[^\w\s]"
)


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text, never far too low: words and punctuation marks, long words in pieces,
    scripts without spaces and long unbroken strings by their length."""
    return len(_PIECES.findall(text))

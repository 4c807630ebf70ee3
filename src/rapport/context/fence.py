"""What others wrote, as it may stand in a prompt: between markers that it can neither end nor imitate."""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

ANCHOR_CHARACTERS = 1_500
"""How much of the message that is replied to stands in its sentence."""

# Characters that nobody sees and that change what one sees: bidirectional controls, invisible letters, control characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_ANCHOR_LIKE = re.compile(r"(replying\s+to\s+this\s+specific\s+message)\s*[:：﹕꞉∶︓]", re.IGNORECASE)
_NOT_IN_NAMES = frozenset('[](){}<>:;,|#`*_=~\\/"“”„‟«»‹›')


def unfenced(text: str) -> str:
    """The text without anything that could end its fence."""
    return text.replace("<<<", "‹‹‹").replace(">>>", "›››")


def harmless(text: str) -> str:
    """The text without marks of the prompt's own, and without characters that hide or turn around what it says."""
    return _ANCHOR_LIKE.sub(r"\1 (quoted)", unfenced(_UNSEEN.sub("", text)))


def fenced(body: str, *, seed: str) -> str:
    """The text between two markers. Their code depends on every word of it, so no word of it can be the code."""
    tries = 0
    while (code := _code(seed, tries, body)) in body:
        tries += 1
    return f"<<<chat {code}\n{body}\nchat {code}>>>"


def _code(seed: str, tries: int, body: str) -> str:
    return blake2b(f"{seed}\n{tries}\n{body}".encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()


def anchor_sentence(words: str) -> str:
    """Which message somebody replies to (CTX-3): one line, which the quoted words can't end early."""
    line = " ".join(harmless(words).replace("'", "’").split())
    return f"User is replying to this specific message: '{clipped(line, ANCHOR_CHARACTERS)}'"


def indented(text: str) -> str:
    """The text with every line but the first set in: only a speaker begins a line, so nobody speaks for somebody else."""
    return "\n  ".join(text.splitlines())


def clipped(text: str, limit: int) -> str:
    """At most about so many characters: the beginning and the end, and a sign where something is missing."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head].rstrip()} […{len(text) - head - tail:,} characters left out…] {text[-tail:].lstrip()}"


def plain_name(name: str, *, limit: int = 40) -> str:
    """A name as one short run of words, without the marks that the prompt sets; nothing may be left of it."""
    seen = (" " if character in _NOT_IN_NAMES else character for character in unicodedata.normalize("NFKC", name))
    kept = (" " if _is_space(one) else one for one in seen if _is_space(one) or unicodedata.category(one)[0] != "C")
    return " ".join("".join(kept).split())[:limit].strip()


def _is_space(character: str) -> bool:
    return character.isspace() or unicodedata.category(character)[0] == "Z"

"""Find what the writer of a message states in their own name: no quotations, questions, conditions, hearsay, jokes, secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rapport.domain.patterns import compile_linear
from rapport.domain.phrases import begins_with, expand, find_any, load_languages, load_phrases
from rapport.domain.text_bounds import collapse_runs

DATA = "rapport.memory"
"""The package whose folder `data` holds the words and rules of extraction."""
MAX_CHARACTERS = 2_500
"""A person who writes more than this at once has pasted it."""
MAX_WHEN_ASKED = 600
""""Please note" in a long text stands in a letter, and the letter is not to us."""
LONGEST_CLAUSE = 240
"""Characters of a sentence: a longer one is not looked at."""
_STRAIGHT = str.maketrans({"’": "'", "‘": "'", "´": "'", "ʼ": "'", "\u00a0": " ", "\u202f": " ", "…": "."})
_ENGLISH = load_languages(DATA)["en"]
_NOT_OWN = find_any([*load_phrases(DATA, "handed_over"), *load_phrases(DATA, "jokes"), *load_phrases(DATA, "secrets")])
_ORDERED = find_any(load_phrases(DATA, "ordered"))
_NOT_MEANT = find_any(load_phrases(DATA, "not_meant"))
_OPENERS = begins_with(load_phrases(DATA, "openers"), before=r"[\s,:;.!–-]*")
_CLOSERS = compile_linear(rf"[\s,]+(?:{'|'.join(load_phrases(DATA, 'closers'))})[\s,.!]*$", is_ascii=True)
_ASKED_FOR = compile_linear(f"^{expand(_ENGLISH['asked_for'], {})}", ignore_case=True, is_ascii=True)
_QUESTION = re.compile(rf"(?:,|\b(?:so|and|but))\s+(?:{_ENGLISH['questions']})\b(?!\s+(?:i|we)\W*$)", re.IGNORECASE)
_MAIL = re.compile(
    r"^[ \t]*(?:-{2,}|begin forwarded|(?:from|to|cc|sent|subject|date|von|an|betreff|de|objet)[ \t]*:|on .{4,80} wrote:"
    r"|dear (?:mr|mrs|ms|sir|madam|dr|prof|team|hiring|all)\b|to whom it may concern)",
    re.IGNORECASE | re.MULTILINE,
)
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_BULLET = re.compile(r"^\s*(?:[-*•·]|\d+[.)])\s+")
_ABBREVIATED = re.compile(r"\b(Mr|Mrs|Ms|Dr|St|Prof)\.(?=\s)")
_ENDS = re.compile(r"(?<=[.!?])\s+|;\s+|\s+[–—-]+\s+")
_ONE_NAME = re.compile(r'"([A-ZÀ-Þ][\w-]{1,30})"')
_QUOTES = frozenset('"“”„«»`')
_QUOTED_ASIDE = re.compile(r"(?<!\w)'[^'\n]|[\w,.]'(?!\w)")
_PARTS = re.compile(r",?\s+(?:and|but|plus)\s+(?:also\s+)?|,\s+|\s+(?:und|et|y)\s+")
_CLAUSE = re.compile(
    r",?\s+(?:and|but|so|plus|because)\s+(?=(?:i|i'm|i've|my|our|we|call me)\b)|,\s+(?=(?:i|i'm|my|our|we)\b)",
    re.IGNORECASE,
)
_SUBJECT = re.compile(r"(?:i'm|i am|im|i|we|ich|je|my|our|call me)\b|j'", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One clause, without what only leads into it; `is_asked_for` if the writer wants it remembered."""

    text: str
    is_asked_for: bool = False

    @property
    def parts(self) -> list[str]:
        """Return what the clause is made of, between its commas and conjunctions."""
        return _PARTS.split(self.text)

    def join(self, begin: int, end: int) -> str:
        """Return some of the parts as they were written, with the clause's subject before them."""
        places = [0, *(match.end() for match in _PARTS.finditer(self.text))]
        ends = [*(match.start() for match in _PARTS.finditer(self.text)), len(self.text)]
        part = self.text[places[begin] : ends[end - 1]]
        subject = _SUBJECT.match(self.text)
        return part if begin == 0 or subject is None or _SUBJECT.match(part) else f"{subject[0]} {part}"


def split_statements(text: str) -> list[Statement]:
    """Return the clauses of a message that its writer means as they stand."""
    if len(text) > MAX_CHARACTERS:
        return []
    text = collapse_runs(text.translate(_STRAIGHT))
    lower = text.lower()
    if _NOT_OWN.search(lower) or any(laughing in text for laughing in "😂🤣😉😜😝🙃🤪😆"):
        return []
    if ordered := _ORDERED.search(lower):
        text = text[: ordered.start()]
    may_ask = len(text) <= MAX_WHEN_ASKED
    sentences = (part.strip() for line in _own_lines(text) for part in _ENDS.split(_ABBREVIATED.sub(r"\1", line)))
    return [found for sentence in sentences for found in _statements(sentence, may_ask=may_ask)]


def _own_lines(text: str) -> Iterator[str]:
    """Yield the lines that are not somebody else's: no code, forwarded mail or quoted lines."""
    text = _CODE.sub("\n", text)
    if mail := _MAIL.search(text):
        text = text[: mail.start()]
    for line in text.splitlines():
        if not line.lstrip().startswith((">", "|", "#", "//", "<")):
            yield _ONE_NAME.sub(r"\1", _BULLET.sub("", line))


def _statements(sentence: str, *, may_ask: bool) -> Iterator[Statement]:
    if len(sentence) > LONGEST_CLAUSE:
        return
    body = _without_openers(sentence)
    asked = _ASKED_FOR.match(body)
    if asked:
        is_plain = asked[0].rstrip().endswith(("that", ",", ":")) or bool(_SUBJECT.match(body[asked.end() :]))
        body = body[asked.end() :] if may_ask and is_plain else ""
    elif body.endswith("?"):
        question = _QUESTION.search(body)
        body = body[: question.start()] if question else ""
    body = body.rstrip(" ?!.,")
    is_quoted = not _QUOTES.isdisjoint(body) or bool(_QUOTED_ASIDE.search(body))
    if not body or is_quoted or ":" in re.sub(r"\d:\d", "", body) or _NOT_MEANT.search(body.lower()):
        return
    for clause in _CLAUSE.split(body):
        bare = _CLOSERS.sub("", _without_openers(clause)).strip(" ,.!?-–*_~")
        lowered = bare.lower() if bare.isupper() else bare
        if lowered:
            yield Statement(lowered, asked is not None)


def _without_openers(text: str) -> str:
    """Return the text without "By the way, …" and its kin."""
    lower = text.lower()
    begin = 0
    while (found := _OPENERS.match(lower[begin:])) and found.end():
        begin += found.end()
    return text[begin:]

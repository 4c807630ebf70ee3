"""The `Sources:` block of a system prompt, taken apart. Its text is data: nothing in it is ever obeyed."""

import re
from dataclasses import dataclass

from rapport.builtin.language.word_lists import LABELS

_HEADER = re.compile(r"^[#*\s]*sources\s*:\s*\**\s*$", re.IGNORECASE | re.MULTILINE)
_FENCED_START = re.compile(r"^\[source:\s*[A-Za-z0-9_-]+\]\s*\n\s*<<<", re.MULTILINE)
_TRAILER = re.compile(r"^Answer clearly and concisely, then list citations", re.MULTILINE)
_TAGGED = re.compile(r"^\s*(?:[-*]\s+)?\[source:\s*([A-Za-z0-9_-]+)\]\s*(.*)$")
_LABELLED = re.compile(r"^\s*(?:[-*]\s+)?\[?([A-Za-z0-9_-]{1,80})\]?:\s+(\S.*)$")
_STRICT = re.compile(r"\buse only the provided\b|\bonly use (?:content|information) from\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """One document the prompt offers; without an id it can be used but not cited."""

    id: str | None
    text: str


def is_strict(system: str) -> bool:
    """Return whether the prompt allows nothing but its sources."""
    return bool(_STRICT.search(system))


def parse(system: str) -> list[Source]:
    """Return the sources of a prompt in their order; empty if it has no such block."""
    start = _HEADER.search(system)
    if start:
        block = system[start.end() :]
    elif fenced := _FENCED_START.search(system):
        block = system[fenced.start() :]
    else:
        return []
    if "<<<" in block and (found := _read_fenced(block)):
        return found
    trailer = _TRAILER.search(block)
    return _read_unfenced(block[: trailer.start()] if trailer else block)


def _read_fenced(block: str) -> list[Source]:
    """`[source: id]`, then text between `<<<` and `>>>`; a tag between the fences is only text."""
    found: list[Source] = []
    current: str | None = None
    inside: list[str] | None = None
    for line in block.splitlines():
        if inside is None:
            tag = _TAGGED.match(line)
            current = tag.group(1) if tag else current
            opening = (tag.group(2) if tag else line).strip()
            if current is None or not opening.startswith("<<<"):
                continue
            inside, line = [], opening[3:]
        if line.rstrip().endswith(">>>"):
            inside.append(line.rstrip()[:-3])
            found.append(Source(current, "\n".join(inside).strip()))
            current, inside = None, None
        else:
            inside.append(line)
    if inside is not None and current:
        found.append(Source(current, "\n".join(inside).strip()))
    return [source for source in found if source.text]


def _read_unfenced(block: str) -> list[Source]:
    """`id: text`, `[source: id] text` and plain paragraphs."""
    lines = [line for line in block.splitlines() if line.strip()]
    every_line_labelled = all(_LABELLED.match(line) for line in lines)
    found: list[Source] = []
    for paragraph in re.split(r"\n\s*\n", block):
        for number, line in enumerate(paragraph.strip().splitlines()):
            head = _TAGGED.match(line) or (_LABELLED.match(line) if number == 0 or every_line_labelled else None)
            if head and number and head.group(1).lower() in LABELS:
                head = None  # "Note: …" inside a paragraph belongs to its text
            if head:
                found.append(Source(head.group(1), head.group(2)))
            elif number == 0 and not (found and found[-1].id and not found[-1].text):
                found.append(Source(None, line))
            elif found:
                found[-1] = Source(found[-1].id, f"{found[-1].text}\n{line}".strip())
    return [source for source in found if source.text.strip()]

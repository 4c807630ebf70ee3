"""Read tables of comma-separated values: every row becomes one line of `heading: value` pairs."""

import csv

from rapport.retrieval.files.plain import decode_text
from rapport.retrieval.files.read_errors import ReadFault, UnreadableFile


def read(data: bytes, *, limit: int) -> tuple[str, str]:
    """Return an empty title, because a table has none, and the rows as text."""
    lines: list[str] = []
    length = 0
    for row in csv.DictReader(decode_text(data).splitlines(), restval="", restkey="more"):
        lines.append("- " + ", ".join(f"{heading}: {value}" for heading, value in row.items()))
        length += len(lines[-1])
        if length > limit:
            raise UnreadableFile(ReadFault.TOO_MUCH_TEXT)
    return "", "\n".join(lines)

"""Cursors of lists that are ordered by time: where the last page ended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from rapport.domain.errors import InvalidInput

_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


def format_cursor(at: datetime, id_: str) -> str:
    """A place in a list, as clients hand it back."""
    return f"{at.astimezone(UTC):{_FORMAT}}~{id_}"


def parse_cursor(text: str, *, is_id: Callable[[str], object]) -> tuple[datetime, str]:
    """The place that a client names; raises InvalidInput if it is none of ours."""
    at, _, id_ = text.partition("~")
    try:
        moment = datetime.strptime(at, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        moment = None
    if moment is None or not is_id(id_):
        raise InvalidInput("`before` is not a cursor of this list: take it from `next` of the page before.")
    return moment, id_

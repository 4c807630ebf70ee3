"""Format and parse cursors of lists that are ordered by time: the end of the previous page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from rapport.domain.errors import InvalidInput

_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


def format_cursor(at: datetime, id_: str) -> str:
    """Return the cursor of an entry, which a client sends back as `before`."""
    return f"{at.astimezone(UTC):{_FORMAT}}~{id_}"


def parse_cursor(text: str, *, is_id: Callable[[str], object]) -> tuple[datetime, str]:
    """Return the time and the id of a cursor; raises InvalidInput for any other text."""
    time, _, id_ = text.partition("~")
    try:
        moment = datetime.strptime(time, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        moment = None
    if moment is None or not is_id(id_):
        raise InvalidInput("`before` is not a cursor of this list: use `next` of the previous page.")
    return moment, id_

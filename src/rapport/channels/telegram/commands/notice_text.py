"""How notices say things: other people's words as they are, and times by the clock that somebody lives by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up_requests import Preference
from rapport.followups.gates import check_time_zone
from rapport.retrieval.files.document import fit_on_one_line

_MARKUP = re.compile(r"[\\`*_{}\[\]()<>#+\-.!|~&=]")
_NO_BREAK = "\u2060"
"""Nothing to see. After an @ it makes a name of what would call somebody."""


def escape_markdown(text: str) -> str:
    """The text in Markdown, where every character of it stands for itself."""
    return _MARKUP.sub(r"\\\g<0>", text)


def quote(text: str, *, limit: int = 80) -> str:
    """The beginning of somebody's text, as one line of Markdown: nothing in it formats, and nobody in it is called."""
    line = fit_on_one_line(text.encode(errors="replace").decode(), limit=limit)
    return escape_markdown(line).replace("@", f"@{_NO_BREAK}")


@dataclass(frozen=True, slots=True)
class WallClock:
    """A moment, as the clock of one time zone shows it."""

    zone: ZoneInfo
    now: datetime

    @classmethod
    def for_preference(cls, preference: Preference) -> WallClock:
        """The clock that somebody lives by; UTC if their zone is not known, or not on this machine."""
        try:
            zone = ZoneInfo(check_time_zone(preference.time_zone))
        except InvalidInput:
            zone = ZoneInfo("UTC")
        return cls(zone, datetime.now(UTC))

    @property
    def name(self) -> str:
        return escape_markdown(self.zone.key)

    def format_time(self, moment: datetime) -> str:
        """`14:30` today, else with the day: `Mon 16 Nov, 14:30`."""
        at, today = moment.astimezone(self.zone), self.now.astimezone(self.zone)
        if at.date() == today.date():
            return f"{at:%H:%M}"
        year = "" if at.year == today.year else f" {at.year}"
        return f"{at:%a} {at.day} {at:%b}{year}, {at:%H:%M}"

    def format_with_zone(self, moment: datetime) -> str:
        """The same with the zone, for a time that stands alone."""
        return f"{self.format_time(moment)} ({self.name})"

    def format_distance(self, moment: datetime) -> str:
        """How far off it is, roughly: `in 12 min`."""
        minutes = (moment - self.now).total_seconds() / 60
        if minutes < 1:
            return "in a moment"
        if minutes < 90:
            return f"in {minutes:.0f} min"
        return f"in {minutes / 60:.0f} h" if minutes < 48 * 60 else f"in {minutes / 1_440:.0f} days"

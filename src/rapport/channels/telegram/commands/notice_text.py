"""Render parts of notices: quote people's words, and format times in the owner's time zone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up_requests import Preference
from rapport.followups.gates import check_time_zone
from rapport.retrieval.files.document import fit_on_one_line

PURPOSES: Mapping[str, str] = {
    "check_in": "to pick up our conversation",
    "question_unanswered": "about a question of mine",
    "task_incomplete": "about a task that is still open",
    "waiting_for_decision": "about a decision that is still open",
}
"""The purpose of a follow-up, by its trigger type."""
_MARKUP = re.compile(r"[\\`*_{}\[\]()<>#+\-.!|~&=]")
_NO_BREAK = "\u2060"
"""Invisible. After an @ it keeps the name from notifying anybody."""


def escape_markdown(text: str) -> str:
    """Return the text as Markdown in which every character stands for itself."""
    return _MARKUP.sub(r"\\\g<0>", text)


def quote(text: str, *, limit: int = 80) -> str:
    """Return the beginning of a text as one line of Markdown that formats nothing and notifies nobody."""
    line = fit_on_one_line(text.encode(errors="replace").decode(), limit=limit)
    return escape_markdown(line).replace("@", f"@{_NO_BREAK}")


@dataclass(frozen=True, slots=True)
class WallClock:
    """Format moments in one time zone."""

    zone: ZoneInfo
    now: datetime

    @classmethod
    def for_preference(cls, preference: Preference) -> WallClock:
        """Return the clock of the owner's time zone; UTC if it is not known, or not on this machine."""
        try:
            zone = ZoneInfo(check_time_zone(preference.time_zone))
        except InvalidInput:
            zone = ZoneInfo("UTC")
        return cls(zone, datetime.now(UTC))

    @property
    def name(self) -> str:
        return escape_markdown(self.zone.key)

    def format_time(self, moment: datetime) -> str:
        """Return `14:30` for today, else the day too: `Mon 16 Nov, 14:30`."""
        local, today = moment.astimezone(self.zone), self.now.astimezone(self.zone)
        if local.date() == today.date():
            return f"{local:%H:%M}"
        year = "" if local.year == today.year else f" {local.year}"
        return f"{local:%a} {local.day} {local:%b}{year}, {local:%H:%M}"

    def format_with_zone(self, moment: datetime) -> str:
        """Return the time with its zone, for a time that stands alone."""
        return f"{self.format_time(moment)} ({self.name})"

    def format_distance(self, moment: datetime) -> str:
        """Return roughly how far off the moment is: `in 12 min`."""
        minutes = (moment - self.now).total_seconds() / 60
        if minutes < 1:
            return "in a moment"
        if minutes < 90:
            return f"in {minutes:.0f} min"
        return f"in {minutes / 60:.0f} h" if minutes < 48 * 60 else f"in {minutes / 1_440:.0f} days"

"""Render the buttons under a message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from rapport.channels.telegram.approval_buttons import make_rows
from rapport.channels.telegram.reminder_buttons import make_snooze_row
from rapport.domain.outgoing import Button, Outgoing


def render_keyboard(rows: Sequence[Sequence[Button]]) -> str | None:
    """Return the inline keyboard as the Bot API takes it; None without buttons."""
    if not rows:
        return None
    return json.dumps(
        {"inline_keyboard": [[{"text": each.label, "callback_data": each.data} for each in row] for row in rows]}
    )


def render_keyboard_of(outgoing: Outgoing) -> str | None:
    """Return the keyboard of a message that is sent: a notice's buttons, those for its questions, or a snooze."""
    snooze = [] if outgoing.reminder_id is None else [make_snooze_row(outgoing.reminder_id)]
    return render_keyboard([*arrange_buttons(outgoing.buttons), *make_rows(outgoing.questions), *snooze])


def arrange_buttons(buttons: Sequence[Button]) -> list[list[Button]]:
    """Return the buttons of a notice by their rows."""
    return [list(row) for _, row in groupby(buttons, key=attrgetter("row"))]

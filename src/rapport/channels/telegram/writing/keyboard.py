"""Render the buttons under a message."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rapport.channels.telegram.approval_buttons import make_rows
from rapport.domain.outgoing import Button, Outgoing


def render_keyboard(rows: Sequence[Sequence[Button]]) -> str | None:
    """Return the inline keyboard as the Bot API takes it; None without buttons."""
    if not rows:
        return None
    return json.dumps(
        {"inline_keyboard": [[{"text": each.label, "callback_data": each.data} for each in row] for row in rows]}
    )


def render_keyboard_of(outgoing: Outgoing) -> str | None:
    """Return the keyboard of a message that is sent: a notice's buttons, and those for the questions that a reply asks."""
    return render_keyboard([*([outgoing.buttons] if outgoing.buttons else []), *make_rows(outgoing.questions)])

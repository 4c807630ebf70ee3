"""Ask about tool calls with buttons under a message: allow or deny each call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from rapport.channels.telegram.commands.command import IsAdmin
from rapport.core.approvals import Approvals
from rapport.domain.conversation import Author, Conversation
from rapport.domain.errors import Conflict, InvalidInput, NotFound
from rapport.domain.outgoing import Button, Notice
from rapport.domain.tool_call import Decision, ToolCall
from rapport.domain.visible_text import make_visible
from rapport.turns.outside_calls import is_shortened

_PREFIX: Final = "call"
_DECISIONS: Final[Mapping[str, str]] = {"allow": "Allow", "deny": "Don't allow"}
_SHOW: Final = "show"
_WHOLE: Final = "whole"
GONE: Final = "This question is gone: its chat was erased."
TOO_LATE: Final = "Too late"


@dataclass(frozen=True, slots=True)
class PressResult:
    """The result of a press: what the person reads, and what the message shows."""

    text: str
    """A short notice for the person who pressed."""
    rows: Sequence[Sequence[Button]] | None = None
    """The buttons that the message has from now on; None: as they are."""
    notice: Notice | None = None
    """A message to send: the whole of a call."""


def is_approval_button(data: str) -> bool:
    """Return True if a button with this data was made here."""
    return data.startswith(f"{_PREFIX}:")


def make_rows(questions: Sequence[ToolCall]) -> list[list[Button]]:
    """Return a row of buttons for each question: those that decide, or one that says what was decided.

    If the text shows only a part of a call, another button shows the whole.

    The questions are those of one message, in its order: if there are several, their numbers stand in its text.
    """
    is_numbered = len(questions) > 1
    return [_make_row(question, f" {number}" if is_numbered else "") for number, question in enumerate(questions, 1)]


def _make_row(question: ToolCall, number: str) -> list[Button]:
    labels = {_SHOW: _name_outcome(question)}
    if question.is_undecided:
        labels = {**_DECISIONS, _WHOLE: "Show all"} if is_shortened(question) else _DECISIONS
    return [
        Button(f"{label}{number}", f"{_PREFIX}:{action}:{question.approval_id}") for action, label in labels.items()
    ]


def _name_outcome(question: ToolCall) -> str:
    if question.state == "asked":
        return TOO_LATE
    return "Not allowed" if question.state == "denied" else "Allowed"


async def press_approval_button(
    data: str, conversation: Conversation, presser: Author, presser_is_admin: IsAdmin, approvals: Approvals
) -> PressResult:
    """Store the decision that a button stands for. Safe to repeat: the same decision again changes nothing.

    In a group the person whose message needs the call decides, or an admin. A press that decides nothing says why.
    """
    _, action, approval_id = (*data.split(":", 2), "", "")[:3]
    owner_id = conversation.owner_id
    try:
        questions = await approvals.list_together(owner_id, conversation.id, approval_id)
        question = next(each for each in questions if each.approval_id == approval_id)
        if action == _WHOLE:
            return PressResult("", notice=_show_whole(question))
        if action not in _DECISIONS:
            return PressResult(_describe(question), make_rows(questions))
        is_asker = presser.id == question.asker_id
        is_alone = not conversation.traits.has_many_speakers
        decided = await approvals.decide(
            owner_id,
            conversation.id,
            approval_id,
            cast("Decision", action),
            author_id=presser.id,
            is_admin=is_alone or (not is_asker and question.is_undecided and await presser_is_admin()),
        )
        text = _describe(decided)
    except NotFound:
        return PressResult(GONE, ())
    except Conflict as error:  # decided before, or too late
        text = str(error)
    except InvalidInput as error:  # somebody else's to decide
        return PressResult(str(error))
    return PressResult(text, make_rows(await approvals.list_together(owner_id, conversation.id, approval_id)))


def _show_whole(question: ToolCall) -> Notice:
    """Return a notice with all arguments. In JSON no line of a text can end the block: its line ends are written as `\\n`."""
    arguments = make_visible(json.dumps(question.arguments, ensure_ascii=False, indent=2))
    return Notice(f"`{question.tool}` with:\n\n```json\n{arguments}\n```")


def _describe(question: ToolCall) -> str:
    match question.state:
        case "asked":
            return "Nobody has decided yet." if question.is_undecided else "Nobody decided in time."
        case "denied":
            return "Not allowed: the call is not made."
        case _:
            return "Allowed."

"""Make the trigger of a follow-up: a message of the system that only its metadata identifies (AUTO-1, AUTO-3)."""

from __future__ import annotations

from typing import Any

import structlog
from langchain_core.messages import HumanMessage

from rapport.domain.follow_up import TriggerType, find_trigger_type

log = structlog.get_logger()

_LONGEST_NAME = 40
"""Maximum length of an unknown type's name in the log: a model may have written any text."""


def make_synthetic_message(
    trigger_type: TriggerType,
    *,
    prompt: str,
    reason: str | None,
    id: str,  # noqa: A002 - LangChain's name for it
) -> HumanMessage:
    """Return a message with the prompt as its content; its type and reason are only in `additional_kwargs`."""
    tags: dict[str, Any] = {"synthetic": True, "trigger_type": trigger_type, "lc_source": "autonomy"}
    if reason:
        tags["trigger_reason"] = reason
    log.debug(
        "autonomy.synthetic_created",
        messageId=id,
        synthetic=True,
        trigger_type=trigger_type,
        lc_source="autonomy",
        has_reason=bool(reason),
    )
    return HumanMessage(content=prompt, id=id, additional_kwargs=tags)


def parse_trigger_type(name: str) -> TriggerType:
    """Return the type of that name; for an unknown name log a warning and return `check_in`."""
    trigger_type = find_trigger_type(name)
    if trigger_type is None:
        log.warning("autonomy.unknown_trigger", trigger_type=name[:_LONGEST_NAME])
        return "check_in"
    return trigger_type

"""Check the model's answer: the step that answers and follow-ups share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import structlog

from rapport.agents.graph_run import Answer
from rapport.agents.tools.registry import ALL_TOOLS
from rapport.domain.context_selection import ContextSelection
from rapport.domain.event import Reply
from rapport.domain.memory import MemoryCandidate
from rapport.followups.leaks import find_leak
from rapport.replies.defusing import make_storable
from rapport.replies.links import find_known_addresses
from rapport.replies.machinery import cut_machinery
from rapport.replies.reply_kinds import make_model_reply
from rapport.turns.findings import Findings

log = structlog.get_logger()


class PromptLeaked(Exception):
    """The answer talks about the hidden instructions."""


def check_reply(
    answer: Answer,
    findings: Findings,
    selection: ContextSelection | None = None,
    *,
    hidden_prompts: Collection[str] = (),
) -> Reply:
    """Return the answer as a reply, without citations of notes that were not retrieved.

    Its metadata has the addresses that people of the selected messages, or the passages, have given: only these are shown as
    links. Raise PromptLeaked if `hidden_prompts` are given and the text talks about them (AUTO-9).
    """
    reply = make_model_reply(answer.text, findings.passages)
    if hidden_prompts and (leak := find_leak(str(reply.content), prompts=hidden_prompts)) is not None:
        log.warning("autonomy.leak", kind=leak)
        raise PromptLeaked(leak)
    candidates = [
        MemoryCandidate(text, saved["key"], "agent") for saved in answer.saved if (text := _clean(saved["content"]))
    ]
    said = [chosen.message.text for chosen in selection.chosen if chosen.message.role == "user"] if selection else []
    if links := find_known_addresses(str(reply.content), [*said, *(passage.text for passage in findings.passages)]):
        reply = replace(reply, metadata={**reply.metadata, "links": links})
    return replace(reply, model_failed=False, memory_candidates=candidates, follow_up=answer.follow_up)


def _clean(memory: str) -> str:
    return cut_machinery(make_storable(memory), ALL_TOOLS).text.strip()

"""Make the three kinds of replies: the checked reply of the model, the guard reply and the fallback reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from rapport.domain.event import Reply
from rapport.domain.model_problems import ModelSetup
from rapport.domain.note import NOTE_ID, Passage
from rapport.domain.usage import BudgetState
from rapport.replies.citations import check_citations
from rapport.replies.defusing import defuse_lines, make_storable
from rapport.replies.snippets import make_snippets

log = structlog.get_logger()

# RAG-4 and RES-4: exactly these words.
GUARD = "I don't have sufficiently relevant documents to answer confidently. Please add more context or documents."
_ISSUE = "Temporary issue generating response. "
_SUMMARY = "Here are the relevant documents summary: "
FALLBACK = _ISSUE + _SUMMARY
NO_SETUP = ModelSetup()


def make_model_reply(text: str, passages: Sequence[Passage]) -> Reply:
    """Return the model's text without citations of notes that were not retrieved, and with the sources of the others."""
    checked = check_citations(make_storable(text), {passage.note_id for passage in passages})
    if passages or checked.generated:
        log.info(
            "chat.citations",
            generatedIds=_redact_ids(checked.generated),
            validIds=list(checked.valid),
            removed=_redact_ids(checked.removed),
        )
    return Reply(checked.text, sources=make_snippets(passages, checked.valid))


def _redact_ids(ids: Sequence[str]) -> list[str]:
    """Return ids for the log. A model may put any text into a tag, and message text is not logged."""
    return [id_ if NOTE_ID.fullmatch(id_) else "(no id)" for id_ in ids]


def make_guard_reply(reason: str, text: str = "") -> Reply:
    """Return the reply of a strict agent when no note has an answer: the text of the contract, or the agent's own."""
    log.info("chat.guard", reason=reason)
    return Reply(text or GUARD, metadata={"guard_used": True})


def make_fallback_reply(
    passages: Sequence[Passage],
    kind: str,
    reason: str,
    *,
    problem: str | None = None,
    model: ModelSetup = NO_SETUP,
    is_kept: bool = True,
) -> Reply:
    """Return the reply for the case that the model can't answer: always the same text for the same passages.

    Without passages it says what to do, and that the message is kept if it `is_kept`. Its metadata has the problem, as a fixed word, and where the model is set up, for the operator. `reason` is logged: it must not
    quote a message.
    """
    log.warning("chat.error", errorType=kind, message=reason)
    snippets = _make_snippets(passages)
    advice = "Your message is kept; please send it again" if is_kept else "Please send your message again"
    summary = f"no relevant documents were found. {advice} in a moment."
    return _make_fallback(FALLBACK + (_quote(snippets) or summary), snippets, problem or kind, model)


def make_budget_reply(
    passages: Sequence[Passage], spent: BudgetState, *, model: ModelSetup = NO_SETUP, is_kept: bool = True
) -> Reply:
    """Return the fallback reply for the case that a budget of tokens is used up: it says so, and when that ends."""
    log.warning("chat.error", errorType="budget", message=f"the {spent.kind}'s budget of tokens is used up")
    snippets = _make_snippets(passages)
    text = f"{_ISSUE}{spent.sentence}{' Your message is kept.' if is_kept else ''}"
    if snippets:
        text = f"{text} {_SUMMARY}{_quote(snippets)}"
    return _make_fallback(text, snippets, "budget", model)


def _make_snippets(passages: Sequence[Passage]) -> Sequence[Mapping[str, str]]:
    return make_snippets(passages, list(dict.fromkeys(passage.note_id for passage in passages)))


def _quote(snippets: Sequence[Mapping[str, str]]) -> str:
    return " ".join(f"{defuse_lines(snippet['text'])} [source: {snippet['id']}]" for snippet in snippets)


def _make_fallback(text: str, snippets: Sequence[Mapping[str, str]], problem: str, model: ModelSetup) -> Reply:
    text = check_citations(text, [snippet["id"] for snippet in snippets]).text
    details = {"kind": problem, "model": model.model, **model.describe()}
    return Reply(text, sources=snippets, metadata={"fallback_used": True, "problem": details})

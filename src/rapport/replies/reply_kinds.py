"""Make the three kinds of replies: the checked reply of the model, the guard reply and the fallback reply."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from rapport.domain.event import Reply
from rapport.domain.note import NOTE_ID, Passage
from rapport.replies.citations import check_citations
from rapport.replies.defusing import defuse_lines, make_storable
from rapport.replies.snippets import make_snippets

log = structlog.get_logger()

# RAG-4 and RES-4: exactly these words.
GUARD = "I don't have sufficiently relevant documents to answer confidently. Please add more context or documents."
FALLBACK = "Temporary issue generating response. Here are the relevant documents summary: "


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


def make_guard_reply(reason: str) -> Reply:
    """Return the reply of a strict agent when no note has an answer."""
    log.info("chat.guard", reason=reason)
    return Reply(GUARD, metadata={"guard_used": True})


def make_fallback_reply(
    passages: Sequence[Passage], kind: str, reason: str, *, problem: str | None = None, model: str = ""
) -> Reply:
    """Return the reply for the case that the model can't answer: always the same text for the same passages.

    Its metadata has the problem, as a fixed word, and the model's name, for the operator. `reason` is logged: it must not
    quote a message.
    """
    log.warning("chat.error", errorType=kind, message=reason)
    snippets = make_snippets(passages, list(dict.fromkeys(passage.note_id for passage in passages)))
    if snippets:
        summary = " ".join(f"{defuse_lines(snippet['text'])} [source: {snippet['id']}]" for snippet in snippets)
    else:
        summary = "there are none for this message. Your message is kept; please send it again in a moment."
    text = check_citations(FALLBACK + summary, [snippet["id"] for snippet in snippets]).text
    details = {"kind": problem or kind, "model": model}
    return Reply(text, sources=snippets, metadata={"fallback_used": True, "problem": details})

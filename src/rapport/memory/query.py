"""Choose the text by which memories are searched: the words of a person, never a trigger (MEM-2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import structlog
from langchain_core.messages import HumanMessage

from rapport.domain.conversation import Block, Message
from rapport.domain.synthetic import is_synthetic

log = structlog.get_logger()

Source: TypeAlias = Literal["message", "last_user_message", "summary", "none"]

_WORD = re.compile(r"[^\W_]")
"""A letter or a digit of any script: a text without one can't be searched for."""
_LONGEST_WISH = 160
"""Maximum characters of a request for everything: a longer text has a subject of its own."""
_EVERYTHING = re.compile(
    r"\b(?:"
    # English
    r"(?:what|everything|all|anything|something|how much) (?:else )?(?:do |can |could |that )?you (?:\w+ )?(?:know|remember|recall|learned|learnt)"
    r"(?: (?:about|of) (?:me|us)\b|\W*$)"
    r"|do you (?:\w+ )?(?:know|remember|recall) (?:anything|something|everything|much)(?: (?:about|of) (?:me|us)\b|\W*$)"
    r"|(?:what|everything|all)(?: \w+)? (?:have |did |that )?(?:i|i've|we|we've)(?: have)? (?:\w+ )?(?:told|tell) you"
    r"(?: (?:about (?:me|myself|us)|so far|before|until now|already))*\W*$"
    r"|(?:tell|remind) me (?:\w+ )?(?:about (?:me|myself)\b|who i am\b)|(?:who am i|describe me)\W*$"
    # German
    r"|was (?:alles )?(?:weißt|weisst|weiß|wissen) (?:du|ihr|sie) (?:\w+ )*(?:über|von) (?:mich|mir|uns)\b"
    r"|(?:was|woran) (?:\w+ )?(?:erinnerst du dich|hast du dir (?:\w+ )*gemerkt)|was (?:\w+ )?(?:habe?|hatte) ich dir (?:\w+ )*(?:erzählt|gesagt)\W*$"
    r"|erzähl\w* mir (?:\w+ )?(?:über mich|von mir)\b|wer bin ich\W*$"
    # French
    r"|(?:que|qu'est-ce que|ce que|quoi) (?:sais-tu|savez-vous|tu sais|vous savez) (?:\w+ )?(?:de|sur) (?:moi|nous)\b|(?:tu sais|tu te souviens de) quoi (?:de|sur) moi\b"
    r"|(?:de quoi|que) te (?:souviens|rappelles)-tu\b|(?:que|qu'est-ce que) (?:t'ai-je|je t'ai) (?:\w+ )?(?:dit|raconté)\b|parle[- ]moi de moi\b|qui suis-je\W*$"
    # Spanish
    r"|qué (?:más )?(?:sabes|sabe|recuerdas|recuerda) (?:\w+ )?(?:de|sobre) (?:mí|mi|nosotros)\b|qué (?:más )?(?:recuerdas|te he (?:contado|dicho)|te conté|te dije)\W*$"
    r"|(?:háblame|cuéntame) (?:\w+ )?(?:de|sobre) (?:mí|mi)\W*$|quién soy(?: yo)?\W*$"
    r")",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Query:
    """The text that memories are compared with, and its source."""

    text: str
    source: Source


NOTHING = Query("", "none")


def derive_query(current: HumanMessage, history: Sequence[Message], summary: Message | None) -> Query:
    """Return the text of `current`; if it is synthetic or has no words, the last message of a person, else the summary.

    `history` is the conversation before `current`, oldest first. Synthetic content is never returned.
    """
    if not is_synthetic(current):
        return _find_last_user_message(current) or _earlier(history, summary)
    trigger_type = current.additional_kwargs.get("trigger_type")
    log.debug("Synthetic message detected in memory retrieval", trigger_type=trigger_type)
    earlier_text = _earlier(history, summary)
    if earlier_text != NOTHING:
        log.info(
            "Memory query used fallback strategy due to synthetic trigger",
            source=earlier_text.source,
            trigger_type=trigger_type,
        )
    elif not any(map(_is_of_a_person, history)):
        log.error("Autonomous message triggered on empty thread - misconfiguration", trigger_type=trigger_type)
    # Otherwise a person has sent only pictures, which is no error.
    return earlier_text


def asks_for_everything(text: str) -> bool:
    """Return True if a person asks for everything that is known about them, in English, German, French or Spanish."""
    line = " ".join(text.replace("’", "'").split())
    return len(line) <= _LONGEST_WISH and bool(_EVERYTHING.search(line))


def _find_last_user_message(current: HumanMessage) -> Query | None:
    text = _words(_text(current))
    return Query(text, "message") if text else None


def _earlier(history: Sequence[Message], summary: Message | None) -> Query:
    for message in reversed(history):
        if _is_of_a_person(message) and (text := _words(message.text)):
            return Query(text, "last_user_message")
    if summary is not None and not is_synthetic(summary) and (text := _words(summary.text)):
        return Query(text, "summary")
    return NOTHING


def _is_of_a_person(message: Message) -> bool:
    return message.role == "user" and not is_synthetic(message)


def _text(message: HumanMessage) -> str:
    """Return the text blocks, joined by line breaks."""
    content = cast("str | Sequence[str | Block]", message.content)  # pyright: ignore[reportUnknownMemberType]
    if isinstance(content, str):
        return content
    blocks = ({"type": "text", "text": block} if isinstance(block, str) else block for block in content)
    return "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


def _words(text: str) -> str:
    return text.strip() if _WORD.search(text) else ""

"""What others wrote, as the model may read it: a tag that a person typed, or that stands in a note, is never a citation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rapport.domain.conversation import Author, Block, Content, Message
from rapport.domain.notes import Passage
from rapport.reply.citations import defuse

_ROUND = str.maketrans("[]", "()")


def quoted_message(message: Message) -> Message:
    """A person's message without tags, its author's name included; what the agent said is left as it is."""
    if message.role != "user":
        return message
    return replace(message, content=_quoted(message.content), author=message.author and _quoted_author(message.author))


def quoted_passage(passage: Passage) -> Passage:
    """A passage without tags of its own, wherever they begin and end."""
    title, heading, text = _defused([passage.title, passage.heading, passage.text])
    return replace(passage, title=title, heading=heading, text=text)


def _quoted_author(author: Author) -> Author:
    # No brackets at all: what the person says stands right behind the name, and could end a tag that begins there.
    return replace(author, name=author.name.translate(_ROUND))


def _quoted(content: Content) -> Content:
    if isinstance(content, str):
        return defuse(content)
    texts = iter(_defused([str(block["text"]) for block in content if _is_text(block)]))
    return [{**block, "text": next(texts)} if _is_text(block) else block for block in content]


def _is_text(block: Block) -> bool:
    return block.get("type") == "text"


def _defused(texts: Sequence[str]) -> list[str]:
    """Texts that may be read one after the other: what begins in one of them and ends in another is no tag either."""
    whole = defuse("".join(texts))  # as long as before, and each character in its place
    parts: list[str] = []
    for text in texts:
        parts.append(whole[: len(text)])
        whole = whole[len(text) :]
    return parts

"""What others wrote, as the model may read it: a tag that a person typed, or that stands in a note, is never a citation."""

from __future__ import annotations

from dataclasses import replace

from rapport.domain.conversation import Block, Content, Message
from rapport.domain.notes import Passage
from rapport.reply.citations import defuse


def quoted_message(message: Message) -> Message:
    """A person's message without tags; what the agent said is left as it is."""
    return replace(message, content=_quoted(message.content)) if message.role == "user" else message


def quoted_passage(passage: Passage) -> Passage:
    """A passage without tags of its own."""
    return replace(passage, title=defuse(passage.title), heading=defuse(passage.heading), text=defuse(passage.text))


def _quoted(content: Content) -> Content:
    return defuse(content) if isinstance(content, str) else [_quoted_block(block) for block in content]


def _quoted_block(block: Block) -> Block:
    return {**block, "text": defuse(str(block["text"]))} if block.get("type") == "text" else block

"""Quote the text of people and notes for the model, so that a tag in it is never a citation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import cast

from langchain_core.messages import BaseMessage, HumanMessage

from rapport.domain.conversation import Author, Block, Content, Message
from rapport.domain.note import Passage
from rapport.replies.defusing import defuse, defuse_ids

_ROUND = str.maketrans("[]【】［］", "()()()")


def quote_message(message: Message) -> Message:
    """Return a person's message without tags in its text and its author's name. The agent's messages are not changed."""
    if message.role != "user":
        return message
    content, author = _quote(message.content), message.author and _quote_author(message.author)
    if content == message.content and author == message.author:
        return message  # a copy takes ten times as long as the comparison
    return replace(message, content=content, author=author)


def quote_passages(passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages without citations of their own, also across title, heading and text."""
    ids = {passage.note_id for passage in passages}
    return [_quote_passage(passage, ids) for passage in passages]


def quote_history(history: Sequence[BaseMessage], ids: Collection[str]) -> list[BaseMessage]:
    """Return the history without citations of these ids in messages of people."""
    return [quote_prompt(message, ids) if isinstance(message, HumanMessage) else message for message in history]


def quote_prompt(message: HumanMessage, ids: Collection[str]) -> HumanMessage:
    """Return the message without citations of these ids.

    `quote_message` has rewritten tags already; the other forms depend on the retrieved ids.
    """
    if not ids:
        return message
    content = cast("Content", message.content)  # pyright: ignore[reportUnknownMemberType]
    return message.model_copy(update={"content": _rewrite(content, lambda text: defuse_ids(text, ids))})


def quote_content(content: Content, ids: Collection[str]) -> Content:
    """Return a text from outside without tags and without citations of these ids; without ids, the text itself."""
    return _rewrite(_quote(content), lambda text: defuse_ids(text, ids)) if ids else content


def _quote_passage(passage: Passage, ids: Collection[str]) -> Passage:
    texts = [passage.title, passage.heading, passage.text]
    title, heading, text = _rewrite_joined(texts, lambda joined: defuse_ids(defuse(joined), ids))
    return replace(passage, title=title, heading=heading, text=text)


def _quote_author(author: Author) -> Author:
    # No brackets at all: the person's text follows the name and could end a tag that begins there.
    return replace(author, name=author.name.translate(_ROUND))


def _quote(content: Content) -> Content:
    return _rewrite(content, defuse)


def _rewrite(content: Content, rewrite: Callable[[str], str]) -> Content:
    """Return the content with its texts rewritten as one text, so that no citation begins in one block and ends in another."""
    if isinstance(content, str):
        return rewrite(content)
    texts = iter(_rewrite_joined([str(block["text"]) for block in content if _is_text(block)], rewrite))
    return [{**block, "text": next(texts)} if _is_text(block) else block for block in content]


def _is_text(block: Block) -> bool:
    return block.get("type") == "text"


def _rewrite_joined(texts: Sequence[str], rewrite: Callable[[str], str]) -> list[str]:
    """Return the texts rewritten as one; `rewrite` leaves each character in its place."""
    joined = rewrite("".join(texts))
    parts: list[str] = []
    for text in texts:
        parts.append(joined[: len(text)])
        joined = joined[len(text) :]
    return parts

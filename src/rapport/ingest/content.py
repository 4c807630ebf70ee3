"""Check that a message's content can be stored and is within limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from rapport.domain.conversation import Author, Content, extract_text
from rapport.domain.errors import InvalidInput, TooLarge
from rapport.domain.text_checks import check_text, has_visible_text

MAX_CHARACTERS = 32_000
MAX_BLOCKS = 32
MAX_IMAGE_CHARACTERS = 1_000_000
"""Maximum length of an image's data or address in the request."""
MAX_NAME_CHARACTERS = 200
"""Maximum length of an id or a name."""
MAX_MENTIONS = 50
MAX_PAYLOAD_BYTES = 200_000
"""Maximum size of a platform's own update that is stored, in bytes."""

# The fields of a block that are stored and sent to the model. Any other field is refused with an error.
_IMAGE_CARRIERS = ("url", "base64", "data", "image_url", "file_id")
_IMAGE_KEYS = frozenset({"type", "mime_type", "source_type", "id", *_IMAGE_CARRIERS})

# The JSON escape of NUL. After an odd number of backslashes it is the written text "\u0000".
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def check_content(content: Content, *, limit: int = MAX_CHARACTERS, field: str = "content") -> Content:
    """Return the content if it can be stored and is within limits.

    Raise InvalidInput with a sentence for the sender, who knows a text as `field`.
    """
    if isinstance(content, str):
        check_text(content, what=field, limit=limit)
        if not has_visible_text(content):
            raise InvalidInput(f"The message is empty: `{field}` needs at least one visible character.")
        return content
    if not content:
        raise InvalidInput("The message is empty: `content` needs at least one block.")
    if len(content) > MAX_BLOCKS:
        raise TooLarge(f"The message has {len(content)} blocks; at most {MAX_BLOCKS} are accepted.")
    blocks = [_check_block(block, limit=limit) for block in content]
    check_text(extract_text(blocks), what="content", limit=limit)
    if not has_visible_text(extract_text(blocks)) and all(block["type"] == "text" for block in blocks):
        raise InvalidInput("The message is empty: its text blocks have no visible character.")
    return blocks


def check_mentions(mentions: Sequence[str]) -> tuple[str, ...]:
    """Return the mentioned names, each once; raises InvalidInput or TooLarge."""
    if len(mentions) > MAX_MENTIONS:
        raise TooLarge(f"`mentions` has {len(mentions)} names; at most {MAX_MENTIONS} are accepted.")
    if not all(name.strip() for name in mentions):
        raise InvalidInput("`mentions` holds an empty name.")
    return tuple(dict.fromkeys(check_text(name, what="mentions", limit=MAX_NAME_CHARACTERS) for name in mentions))


def check_snapshot(
    text: str,
    *,
    id: str | None = None,  # noqa: A002 - the field's name
    author: Author | None = None,
    created_at: str | None = None,
    limit: int = MAX_CHARACTERS,
) -> dict[str, Any]:
    """Return the snapshot of a replied-to message as it is stored: `{id?, author?, text, created_at?}`."""
    if not check_text(text, what="context_snapshot.text", limit=limit).strip():
        raise InvalidInput("`context_snapshot.text` is empty: a snapshot is of what somebody said.")
    snapshot: dict[str, Any] = {"text": text}
    if id is not None:
        snapshot["id"] = check_text(id, what="context_snapshot.id", limit=MAX_NAME_CHARACTERS)
    if author is not None:
        snapshot["author"] = {
            "id": check_text(author.id, what="context_snapshot.author", limit=MAX_NAME_CHARACTERS),
            "name": check_text(author.name, what="context_snapshot.author", limit=MAX_NAME_CHARACTERS),
        }
    if created_at is not None:
        snapshot["created_at"] = _read_time(created_at).isoformat()
    return snapshot


def _read_time(value: str) -> datetime:
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            "`context_snapshot.created_at` is an ISO 8601 time, such as 2024-05-06T08:30:00Z."
        ) from error


def keep_storable_payload(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a platform's update if it can be stored, else None: the message is stored without it."""
    try:
        data = orjson.dumps(payload)
    except TypeError:  # half of a surrogate pair, or no JSON at all
        return None
    return None if len(data) > MAX_PAYLOAD_BYTES or _NUL.search(data) else payload


def _check_block(block: Mapping[str, Any], *, limit: int) -> Mapping[str, Any]:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        if not isinstance(text, str) or set(block) - {"type", "text"}:
            raise InvalidInput('A text block is `{"type": "text", "text": "…"}` and nothing else.')
        return {"type": "text", "text": check_text(text, what="content", limit=limit)}
    if kind == "image" or kind == "image_url":
        return _check_image(block)
    raise InvalidInput("A content block has the type `text` or `image`.")


def _check_image(block: Mapping[str, Any]) -> Mapping[str, Any]:
    if unknown := set(block) - _IMAGE_KEYS:
        raise InvalidInput(f"An image block has no field {sorted(unknown)[0][:40]!r}.")
    for text in _list_strings(block):
        check_text(text, what="content", limit=MAX_IMAGE_CHARACTERS)
    if not any(_list_strings(block.get(name)) for name in _IMAGE_CARRIERS if block.get(name)):
        raise InvalidInput("An image block needs its image: a `url`, `base64` data or a `file_id`.")
    return dict(block)


def _list_strings(value: object, *, depth: int = 2) -> list[str]:
    """Return every string in an image block, which nests at most one level (`{"image_url": {"url": …}}`)."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping) and depth:
        strings: list[str] = []
        for key, nested in value.items():  # pyright: ignore[reportUnknownVariableType]
            strings += [*_list_strings(key, depth=0), *_list_strings(nested, depth=depth - 1)]  # pyright: ignore[reportUnknownArgumentType]
        return strings
    raise InvalidInput("The fields of an image block are strings.")

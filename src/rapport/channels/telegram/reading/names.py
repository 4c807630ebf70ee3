"""Name Telegram's people and chats: ids as in exports of chats, and names that can be read and stored."""

from __future__ import annotations

from typing_extensions import TypeIs

import telegram
from rapport.channels.telegram.update_types import Chat, Person
from rapport.domain.conversation import Author
from rapport.domain.text_checks import has_visible_text
from rapport.ingest.content import MAX_NAME_CHARACTERS
from rapport.ingest.placeholders import join_lines

PRIVATE = "private"
_CHANNEL_ID_OFFSET = 1_000_000_000_000
"""The difference between the ids of channels and supergroups in exports and in the Bot API."""
_INVISIBLE_LETTERS = str.maketrans("", "", "\u115f\u1160\u2800\u3164\uffa0")
"""Letters by their Unicode category, but invisible: people use them to have an empty name."""


def make_storable(text: object) -> str:
    """Return the text with NUL and halves of surrogate pairs replaced; all offsets stay the same."""
    if not isinstance(text, str):
        raise TypeError("a text was expected")
    valid = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return valid.replace("\x00", "\ufffd")


def check_number(value: object) -> int:
    """Return the value; raises ValueError if it cannot be an id."""
    if not is_number(value):
        raise ValueError("a number was expected")
    return value


def is_number(value: object) -> TypeIs[int]:
    """Return True if it can be an id, which is never 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < abs(value) < 2**63


def choose_visible(*names: object) -> str | None:
    """Return the first visible name, on one line and shortened; None if there is none."""
    for name in names:
        line = join_lines(make_storable(name))[:MAX_NAME_CHARACTERS].rstrip() if isinstance(name, str) else ""
        if has_visible_text(line.translate(_INVISIBLE_LETTERS)):
            return line
    return None


def join_names(first: object, last: object) -> str:
    return " ".join(part for part in (first, last) if isinstance(part, str))


def make_person(user: telegram.User) -> Person:
    """Return the person by name, else by username, else by id: a deleted account has neither."""
    user_id = check_number(user.id)
    username = choose_visible(user.username)
    name = choose_visible(join_names(user.first_name, user.last_name), username) or f"user{user_id}"
    return Person(user_id, username, name)


def make_chat(chat: telegram.Chat) -> Chat:
    """Return the chat with its shown title."""
    if chat.type == PRIVATE:
        chat_id = check_number(chat.id)
        name = choose_visible(join_names(chat.first_name, chat.last_name), chat.username)
        return Chat(chat_id, "direct", name or f"user{chat_id}")
    return Chat(check_number(chat.id), "group", choose_visible(chat.title))


def make_chat_author(chat: telegram.Chat) -> Author:
    """Return the author for a chat: a channel, or the group itself for an anonymous admin."""
    chat_id = check_number(chat.id)
    if chat_id > 0:
        author_id = f"user{chat_id}"
    elif chat_id < -_CHANNEL_ID_OFFSET:
        author_id = f"channel{-chat_id - _CHANNEL_ID_OFFSET}"
    else:
        author_id = f"chat{-chat_id}"
    name = choose_visible(chat.title, join_names(chat.first_name, chat.last_name), chat.username)
    return Author(author_id, name or author_id)


def find_origin_author(origin: telegram.MessageOrigin) -> Author | None:
    """Return the author of a forwarded message, or of a replied-to message of another chat; None for an unknown kind."""
    if isinstance(origin, telegram.MessageOriginUser):
        return make_person(origin.sender_user).author
    if isinstance(origin, telegram.MessageOriginHiddenUser):
        name = choose_visible(origin.sender_user_name) or "a deleted account"
        return Author(name, name)
    if isinstance(origin, telegram.MessageOriginChat):
        return make_chat_author(origin.sender_chat)
    if isinstance(origin, telegram.MessageOriginChannel):
        return make_chat_author(origin.chat)
    return None


def find_signature(origin: telegram.MessageOrigin) -> str | None:
    """Return the signature of a message in a chat's name."""
    if isinstance(origin, telegram.MessageOriginChat | telegram.MessageOriginChannel):
        return choose_visible(origin.author_signature)
    return None

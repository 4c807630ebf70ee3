"""Find the mentions and the command in a message's words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import telegram
from rapport.channels.telegram.reading.names import check_number
from rapport.channels.telegram.update_types import BotIdentity, ParsedCommand
from rapport.ingest.addressing import strip_quotes_and_code
from rapport.ingest.content import MAX_MENTIONS

_QUOTED = frozenset({"blockquote", "expandable_blockquote", "pre", "code"})
"""A name that is quoted or written as code is not addressed."""

# Not inside a word or an address ("me@bot.example"), and not the beginning of a longer name. A command may precede the @.
_NAME = re.compile(r"(?:(?<![\w@./])|(?<!\S)/\w{1,64})@(\w{1,64})(?![\w-]|\.\w)")
_USERNAME = re.compile(r"[a-z0-9_]{1,64}")
# As Telegram finds them: /etc/passwd is none.
_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,64})(?:@([A-Za-z0-9_]{1,64}))?(?![\w/<>@])")
_MAX_ENTITIES = 1000
"""Telegram sends at most a hundred. They are compared pairwise, so more would cost too much CPU."""


@dataclass(frozen=True, slots=True)
class Tags:
    """The mentions and the command in some words."""

    mentions_agent: bool = False
    """True if they mention this bot."""
    usernames: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    command: ParsedCommand | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """A text or a caption, with Telegram's entities for its parts."""

    text: str
    entities: Sequence[telegram.MessageEntity] | None
    """None if the message has no field for them: then only the text is searched."""

    @property
    def with_addresses(self) -> str:
        """Return the text with the addresses of its links."""
        links = [(part, entity.url) for part, entity in self.parts() if entity.type == "text_link" and entity.url]
        units = self.text.encode("utf-16-le")
        lines: list[str] = []
        end = 0
        for part, url in sorted(links, key=lambda link: link[0].end):
            lines += [_decode(units[2 * end : 2 * part.end]), "" if url == part.text else f" ({url})"]
            end = part.end
        return "".join([*lines, _decode(units[2 * end :])])

    def parts(self) -> list[tuple[_Part, telegram.MessageEntity]]:
        """Return the marked parts of the text. Telegram counts in UTF-16 units, where an emoji is two."""
        units = self.text.encode("utf-16-le")
        marked: list[tuple[_Part, telegram.MessageEntity]] = []
        for entity in (self.entities or ())[:_MAX_ENTITIES]:
            begin, end = entity.offset, entity.offset + entity.length
            if 0 <= begin < end:
                marked.append((_Part(begin, end, _decode(units[2 * begin : 2 * end])), entity))
        return marked


@dataclass(frozen=True, slots=True)
class _Part:
    begin: int
    end: int
    text: str

    def touches(self, other: _Part) -> bool:
        return self.begin < other.end and other.begin < self.end


def find_tags(words: Words, bot: BotIdentity) -> Tags:
    """Return the mentions in the words, each once."""
    if words.entities is None:
        names = [name.lower() for name in _NAME.findall(strip_quotes_and_code(words.text))] if "@" in words.text else []
        return _make_tags(names, [], _parse_command(words.text, bot), bot)
    parts = words.parts()
    quoted = [part for part, entity in parts if entity.type in _QUOTED]
    unquoted = [(part, entity) for part, entity in parts if not any(part.touches(other) for other in quoted)]
    names = [part.text.removeprefix("@").lower() for part, entity in unquoted if entity.type == "mention"]
    commands = [part for part, entity in unquoted if entity.type == "bot_command"]
    names += [part.text.partition("@")[2].lower() for part in commands]
    people = [check_number(entity.user.id) for _, entity in unquoted if entity.type == "text_mention" and entity.user]
    starts_with_command = any(part.begin == 0 for part in commands)
    return _make_tags(names, people, _parse_command(words.text, bot) if starts_with_command else None, bot)


def _make_tags(names: Iterable[str], people: Sequence[int], command: ParsedCommand | None, bot: BotIdentity) -> Tags:
    own_name = bot.username.lower()
    usernames = dict.fromkeys(name for name in names if _USERNAME.fullmatch(name))
    is_bot_named = own_name in usernames or bot.id in people
    usernames.pop(own_name, None)
    author_ids = [
        *([bot.agent_id] if is_bot_named else []),
        *(f"user{person}" for person in people if person != bot.id),
    ]
    mentions = tuple(dict.fromkeys(author_ids))[:MAX_MENTIONS]
    # Limits the total number of mentions after usernames are resolved.
    return Tags(is_bot_named, tuple(usernames)[: MAX_MENTIONS - len(mentions)], mentions, command)


def _parse_command(text: str, bot: BotIdentity) -> ParsedCommand | None:
    """Return the command that the text begins with, unless it is for another bot."""
    match = _COMMAND.match(text)
    if match is None or (match[2] and match[2].lower() != bot.username.lower()):
        return None
    return ParsedCommand(match[1].lower(), text[match.end() :].strip(), is_for_this_bot=bool(match[2]))


def _decode(units: bytes) -> str:
    return units.decode("utf-16-le", "replace")

"""Decide which chats the bot admits: none, until the settings name them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rapport.channels.telegram.update_types import UpdateOrigin
from rapport.domain.conversation_kind import DIRECT
from rapport.domain.errors import InvalidInput
from rapport.domain.text_checks import check_text

_OWNER = re.compile(r"[A-Za-z0-9_.@:-]{1,80}")


@dataclass(frozen=True, slots=True)
class Admission:
    """Hold the admitted chats and users by id, and the owner of each if the settings name one."""

    chats: Mapping[int, str | None]
    users: Mapping[int, str | None]

    @property
    def is_empty(self) -> bool:
        return not (self.chats or self.users)

    def find_admitted_id(self, origin: UpdateOrigin, *, known_as: int | None = None) -> int | None:
        """Return the id by which a chat is admitted, or None. `known_as` is the id the chat had before it became a supergroup.

        In an admitted group everybody may write to the bot. A direct chat needs an entry, in either list.
        """
        for chat_id in (origin.chat_id, known_as):
            if chat_id is not None and (chat_id in self.chats or (origin.traits is DIRECT and chat_id in self.users)):
                return chat_id
        return None

    def choose_owner(self, admitted_as: int, *, first: int) -> str:
        """Return the owner of the chat's conversation: the user that the settings name, else the chat itself.

        `first` is the chat's first id: its own owner id is made from it and stays the same when the chat's id changes.
        """
        owner = self.chats.get(admitted_as) or self.users.get(admitted_as)
        return owner or f"telegram:{first}"


def read_admission(chats: str, users: str) -> Admission:
    """Parse the two lists of the settings; raise InvalidInput that says what to write instead."""
    return Admission(_read_list(chats, "TELEGRAM_ALLOWED_CHATS"), _read_list(users, "TELEGRAM_ALLOWED_USERS"))


def _read_list(text: str, setting: str) -> dict[int, str | None]:
    """Parse `-1001234567890, 99=ann`: ids, each optionally with the Rapport user whose notes and memories it uses."""
    owners: dict[int, str | None] = {}
    for entry in re.split(r"[,;\s]+", re.sub(r"(?<!\s)\s*+=\s*+", "=", text.strip())):
        if not entry:
            continue
        number, _, owner = entry.partition("=")
        if re.fullmatch(r"-?[0-9]{1,18}", number) is None:
            raise InvalidInput(
                f"{setting}: {check_text(entry, what=setting, limit=200)!r} is not an id. Ids are numbers, such as 123456789"
                " for a person or -1001234567890 for a group; a name can pass to somebody else. Leave it empty, write to the bot, and"
                " the log says the id."
            )
        if "=" in entry and _OWNER.fullmatch(owner) is None:
            raise InvalidInput(f"{setting}: after {number}= comes the name of a Rapport user, such as `local`.")
        owners[int(number)] = owner or None
    return owners

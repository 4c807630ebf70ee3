"""Define who calls: an owner id and a role. Check the owner id of a new key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from rapport.domain.agent_profile import EVERYONE
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.errors import InvalidInput
from rapport.domain.text_checks import check_text, has_visible_text, is_plain_line

Role: TypeAlias = Literal["user", "operator"]

ROLES: tuple[Role, ...] = get_args(Role)
MAX_OWNER_ID_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller of a request. The role adds nothing to whose data it sees: that is the owner id alone."""

    owner_id: str
    role: Role

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"


LOCAL_CALLER = Caller(LOCAL_USER, "operator")
"""Every caller of a loopback server without keys."""


def choose_default_role(owner_id: str) -> Role:
    """Return the role of a key whose creator names none: keys of the local user are operators' keys."""
    return "operator" if owner_id == LOCAL_USER else "user"


def check_owner_id(owner_id: str) -> str:
    """Return the owner id if a key can have it; raise InvalidInput otherwise."""
    if owner_id == EVERYONE:
        raise InvalidInput(f"A user can't be called `{EVERYONE}`: it stands for everyone. Choose another name.")
    if not has_visible_text(owner_id):
        raise InvalidInput("The name of the user is empty. Choose one, such as `--user ana`.")
    check_text(owner_id, what="user", limit=MAX_OWNER_ID_CHARACTERS)
    if not is_plain_line(owner_id):
        raise InvalidInput("The name of the user holds a control character, such as a line break. Remove it.")
    return owner_id

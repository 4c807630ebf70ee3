"""The two kinds of conversation, and everything that differs between them.

Code asks for the fact it needs (`event.traits.may_use_memory`) and never compares the stored word. How a turn makes its
prompt from either kind needs upper layers and is in `turns/prompt_input.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

ConversationKind: TypeAlias = Literal["direct", "group"]
"""The kind as it is stored and serialised."""


@dataclass(frozen=True, slots=True)
class ConversationTraits:
    """Facts about every conversation of one kind."""

    name: str
    """The name in a sentence: "this chat", "this group"."""
    default_title: str
    """The title of a conversation that has none."""
    has_many_speakers: bool
    """Several people write: each message needs a speaker, and no name or message stands for "the person"."""
    is_always_addressed: bool
    """Every message is for the agent, also without a mention."""
    has_topics: bool
    """Messages may belong to a forum topic, and only those of the same topic are loaded."""
    has_admins: bool
    """Only an administrator decides for everybody."""
    may_use_memory: bool
    """The agent recalls and stores memories: a group must not read what one person has said elsewhere."""
    shows_personal_data: bool
    """The agent may show the owner's notes and memories that a reply does not cite."""
    follows_up_by_default: bool
    """Follow-ups are on until somebody turns them off."""
    is_summarized: bool
    """A summary stands for old messages. In a group it would mix everybody's topics."""
    selects_context: bool
    """The messages that belong to a call are selected, by words and vectors too; otherwise the newest are used."""

    def wants_follow_ups(self, choice: bool | None) -> bool:
        """Return True if follow-ups are on; `choice` is the conversation's own setting, None if it is unset."""
        return self.follows_up_by_default if choice is None else choice


DIRECT: Final = ConversationTraits(
    name="chat",
    default_title="A direct chat",
    has_many_speakers=False,
    is_always_addressed=True,
    has_topics=False,
    has_admins=False,
    may_use_memory=True,
    shows_personal_data=True,
    follows_up_by_default=True,
    is_summarized=True,
    selects_context=False,
)
GROUP: Final = ConversationTraits(
    name="group",
    default_title="A group",
    has_many_speakers=True,
    is_always_addressed=False,
    has_topics=True,
    has_admins=True,
    may_use_memory=False,
    shows_personal_data=False,
    follows_up_by_default=False,
    is_summarized=False,
    selects_context=True,
)
TRAITS: Final[Mapping[ConversationKind, ConversationTraits]] = {"direct": DIRECT, "group": GROUP}

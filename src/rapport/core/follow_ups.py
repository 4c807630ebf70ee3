"""Follow-ups: the timers of a conversation, whether they may fire, the owner's preferences, and the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rapport.core.reminders import reschedule
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import Timer, TriggerType
from rapport.domain.follow_up_outcomes import OutcomeCount
from rapport.domain.follow_up_requests import TIMER_ID, Permission, Preference
from rapport.domain.ids import new_id
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.followups.follow_up_turns import FollowUpTurns
from rapport.storage.followups.preferences import Preferences
from rapport.storage.followups.timers import Timers, no_such_timer


@dataclass(frozen=True, slots=True)
class FollowUpListing:
    """A conversation's follow-ups, and what its owner allows."""

    permission: Permission
    preference: Preference
    waiting: Sequence[Timer]
    past: Sequence[Timer]


UNCHANGED: Literal["unchanged"] = "unchanged"
"""Marks a part of a permission that is not changed; None is a valid value there."""


@dataclass(frozen=True, slots=True)
class FollowUpControls:
    """Every method that takes a conversation raises NotFound for one that is not the owner's."""

    database: Database
    on_timers_changed: Callable[[], None] = lambda: None
    on_reminders_changed: Callable[[], None] = lambda: None

    async def load(self, owner_id: str, conversation_id: str, *, past: int = 0) -> FollowUpListing:
        """Return the pending timers of a conversation, the next first, and up to `past` fired ones, the newest first."""
        async with self.database.statement() as connection:
            permission = await Conversations(connection).get_permission(owner_id, conversation_id)
            timers = Timers(connection)
            return FollowUpListing(
                permission,
                await Preferences(connection).get(owner_id),
                await timers.list_pending(owner_id, conversation_id),
                await timers.list_past(owner_id, conversation_id, limit=past) if past else (),
            )

    async def set_timer(
        self,
        owner_id: str,
        conversation_id: str,
        *,
        timer_id: str,
        trigger_type: TriggerType,
        delay: float,
        reason: str | None = None,
    ) -> tuple[Timer, bool]:
        """Set the timer of that name, or move it; return it and whether it is new."""
        row_id = new_id()
        async with self.database.statement() as connection:
            timer = await Timers(connection).set(
                owner_id,
                conversation_id,
                timer_id=timer_id,
                trigger_type=trigger_type,
                delay=delay,
                reason=reason,
                row_id=row_id,
            )
        assert timer is not None
        self.on_timers_changed()
        return timer, timer.id == row_id

    async def change_timer(
        self,
        owner_id: str,
        conversation_id: str,
        timer_id: str,
        *,
        delay: float | None = None,
        trigger_type: TriggerType | None = None,
        reason: str | None = None,
    ) -> Timer:
        """Change a waiting timer; an empty reason removes it. Raises NotFound if none of that name waits."""
        async with self.database.statement() as connection:
            await Conversations(connection).get(owner_id, conversation_id)
            timer = TIMER_ID.fullmatch(timer_id) and await Timers(connection).change(
                owner_id, conversation_id, timer_id, delay=delay, trigger_type=trigger_type, reason=reason
            )
        if not timer:
            raise no_such_timer(timer_id)
        self.on_timers_changed()
        return timer

    async def cancel_timer(self, owner_id: str, conversation_id: str, timer_id: str) -> None:
        """Cancel a waiting timer. Raises NotFound if none of that name waits."""
        async with self.database.statement() as connection:
            await Conversations(connection).get(owner_id, conversation_id)
            if not TIMER_ID.fullmatch(timer_id) or not await Timers(connection).cancel(
                owner_id, conversation_id, timer_id
            ):
                raise no_such_timer(timer_id)
        self.on_timers_changed()

    async def set_permission(
        self,
        owner_id: str,
        conversation_id: str,
        *,
        allowed: bool | Literal["unchanged"] | None = UNCHANGED,
        muted_until: datetime | float | Literal["unchanged"] | None = UNCHANGED,
    ) -> Permission:
        """Allow or forbid follow-ups (None: the default of the kind of chat), and mute them until a moment or for seconds.

        `muted_until=None` unmutes. Raises InvalidInput, and changes nothing, if that moment is in the past.
        """
        async with self.database.transaction() as connection:
            conversations = Conversations(connection)
            permission = await conversations.get_permission(owner_id, conversation_id)
            if allowed != UNCHANGED:
                permission = await conversations.set_followups_enabled(owner_id, conversation_id, allowed)
            if muted_until != UNCHANGED:
                permission = await conversations.mute(owner_id, conversation_id, until=muted_until)
                if muted_until is not None and permission.muted_until is None:
                    raise InvalidInput('`until` is in the past. To unmute send `{"until": null}`.')
        return permission

    async def get_preference(self, owner_id: str) -> Preference:
        """Return the owner's time zone and quiet hours."""
        async with self.database.statement() as connection:
            return await Preferences(connection).get(owner_id)

    async def update_preference(self, owner_id: str, update: Callable[[Preference], Preference]) -> Preference:
        """Replace the owner's preference by the result of `update`, under a lock; nothing changes if it raises.

        Reminders that follow the person's clock or quiet hours move with it.
        """
        async with self.database.transaction() as connection:
            preferences = Preferences(connection)
            preference = update(await preferences.get(owner_id, lock=True))
            await preferences.put(owner_id, preference)
            moved = await reschedule(connection, owner_id, preference)
        if moved:
            self.on_reminders_changed()
        return preference

    async def load_outcomes(self, owner_id: str, *, days: float) -> Sequence[OutcomeCount]:
        """Count the outcomes of the follow-ups that fired in the last `days`."""
        async with self.database.statement() as connection:
            return await FollowUpTurns(connection).count_outcomes(owner_id, days=days)

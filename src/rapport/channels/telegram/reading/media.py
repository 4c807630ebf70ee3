"""Render attachments as one or a few lines of text; the files are not downloaded.

An imported export of a chat gets the same texts for the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import telegram
from rapport.channels.telegram.reading.names import join_names
from rapport.ingest.placeholders import render_list, render_placeholder


def render_media(message: telegram.Message | telegram.ExternalReplyInfo) -> str:
    """Return the placeholder for a message's attachment; empty if there is none, or an unknown one."""
    for name, render in _KINDS.items():
        if sent := getattr(message, name, None):
            return render(sent)
    return ""


def _bare(label: str) -> Callable[[object], str]:
    return lambda _: render_placeholder(label)


def _file(label: str) -> Callable[[Any], str]:
    return lambda file: render_placeholder(label, file.file_name)


def _title(label: str) -> Callable[[Any], str]:
    return lambda thing: render_placeholder(label, thing.title)


def _audio(audio: telegram.Audio) -> str:
    details = [audio.title, audio.performer]
    return render_placeholder("audio", *(details if any(details) else [audio.file_name]))


def _sticker(sticker: telegram.Sticker) -> str:
    return render_placeholder("sticker", sticker.emoji)


def _contact(contact: telegram.Contact) -> str:
    return render_placeholder("contact", join_names(contact.first_name, contact.last_name))


def _venue(venue: telegram.Venue) -> str:
    return render_placeholder("location", f"{venue.title}, {venue.address}, {_point(venue.location)}")


def _location(location: telegram.Location) -> str:
    return render_placeholder("location", _point(location))


def _point(location: telegram.Location) -> str:
    return f"{location.latitude}, {location.longitude}"


def _poll(poll: telegram.Poll) -> str:
    return render_list("poll", poll.question, (option.text for option in poll.options))


def _checklist(checklist: telegram.Checklist) -> str:
    tasks = (task.text + (" (done)" if task.completion_date else "") for task in checklist.tasks)
    return render_list("checklist", checklist.title, tasks)


def _dice(dice: telegram.Dice) -> str:
    return render_placeholder("dice", f"{dice.emoji} {dice.value}")


def _giveaway(giveaway: telegram.Giveaway) -> str:
    return render_placeholder("giveaway", giveaway.prize_description)


# Telegram also sends an animation as a document, for older programs: the more specific kind comes first.
_KINDS: Mapping[str, Callable[[Any], str]] = {
    "animation": _file("animation"),
    "live_photo": _bare("photo"),
    "venue": _venue,
    "photo": _bare("photo"),
    "video": _file("video"),
    "audio": _audio,
    "voice": _bare("voice message"),
    "video_note": _bare("video message"),
    "sticker": _sticker,
    "document": _file("file"),
    "contact": _contact,
    "location": _location,
    "poll": _poll,
    "checklist": _checklist,
    "dice": _dice,
    "game": _title("game"),
    "invoice": _title("invoice"),
    "story": _bare("story"),
    "paid_media": _bare("paid media"),
    "giveaway": _giveaway,
    "giveaway_winners": _bare("giveaway winners"),
}

"""What was sent beside words, told in a line or a few; the files themselves stay where they are.

An export of a chat, brought in, says the same of the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import telegram
from rapport.channels.telegram.reading.names import join_names
from rapport.ingest.placeholders import render_list, render_placeholder


def render_media(message: telegram.Message | telegram.ExternalReplyInfo) -> str:
    """The placeholder for what a message carries; empty if it carries nothing, or something that isn't known yet."""
    for name, told in _KINDS.items():
        if sent := getattr(message, name, None):
            return told(sent)
    return ""


def _only(what: str) -> Callable[[object], str]:
    return lambda _: render_placeholder(what)


def _file(what: str) -> Callable[[Any], str]:
    return lambda file: render_placeholder(what, file.file_name)


def _titled(what: str) -> Callable[[Any], str]:
    return lambda thing: render_placeholder(what, thing.title)


def _audio(audio: telegram.Audio) -> str:
    about = [audio.title, audio.performer]
    return render_placeholder("audio", *(about if any(about) else [audio.file_name]))


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
    return render_list("poll", poll.question, (one.text for one in poll.options))


def _checklist(checklist: telegram.Checklist) -> str:
    tasks = (task.text + (" (done)" if task.completion_date else "") for task in checklist.tasks)
    return render_list("checklist", checklist.title, tasks)


def _dice(dice: telegram.Dice) -> str:
    return render_placeholder("dice", f"{dice.emoji} {dice.value}")


def _giveaway(giveaway: telegram.Giveaway) -> str:
    return render_placeholder("giveaway", giveaway.prize_description)


# What is sent twice for the sake of older programs comes before its plainer twin: an animation is a document, too.
_KINDS: Mapping[str, Callable[[Any], str]] = {
    "animation": _file("animation"),
    "live_photo": _only("photo"),
    "venue": _venue,
    "photo": _only("photo"),
    "video": _file("video"),
    "audio": _audio,
    "voice": _only("voice message"),
    "video_note": _only("video message"),
    "sticker": _sticker,
    "document": _file("file"),
    "contact": _contact,
    "location": _location,
    "poll": _poll,
    "checklist": _checklist,
    "dice": _dice,
    "game": _titled("game"),
    "invoice": _titled("invoice"),
    "story": _only("story"),
    "paid_media": _only("paid media"),
    "giveaway": _giveaway,
    "giveaway_winners": _only("giveaway winners"),
}

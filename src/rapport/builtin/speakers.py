"""Find who says what inside one message: group chats arrive as `Name: text` or `[Name, time] text` lines."""

import re
from dataclasses import dataclass

from rapport.builtin.language.word_lists import LABELS

_BRACKETED = re.compile(r"^\[([^\[\],:\n]{1,80}),\s*([^\]\n]{1,160})\]:?\s*(.*)$")
_CHAT = re.compile(r"^<<<chat (\w+)\n(.*?)\nchat \1>>>$", re.DOTALL | re.MULTILINE)
_SET_IN = "  "
_REPLYING = re.compile(r", replying to (?!an earlier message$)(.+?)(?: #\d+)?$")
_NAMED = re.compile(r"^([^\W\d_][\w'’-]{0,24}(?: [^\W\d_][\w'’.-]{0,24})?):\s+(\S.*)$")
_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "agent": "assistant"}


@dataclass(frozen=True, slots=True)
class Utterance:
    """A piece of text and who said it, if the text names anybody."""

    text: str
    speaker: str | None = None
    replying_to: str | None = None
    """Says whose message it replies to, where the line says so."""


def utterances(text: str) -> list[Utterance]:
    """Return the message line by line where lines name their speakers, else the message as it is."""
    if "[" not in text and ":" not in text:
        return [Utterance(text)]
    found: list[Utterance] = []
    after_blank = False
    for line in text.splitlines():
        # What is set in goes on with what somebody says, whatever it looks like.
        named = None if found and line.startswith(_SET_IN) else _read_bracketed(line) or _read_named(line)
        if named:
            found.append(named)
        elif not line.strip():
            after_blank = True
            continue
        elif found and not (after_blank and found[-1].speaker):
            found[-1] = _longer(found[-1], line)
        else:
            # Behind a block of quoted lines an unmarked paragraph is the asker's own.
            found.append(Utterance(line))
        after_blank = False
    return found if any(each.speaker for each in found) else [Utterance(text)]


def chat_in(text: str) -> list[Utterance]:
    """Return a group chat quoted between markers: only what stands at the beginning of a line has a speaker."""
    found: list[Utterance] = []
    for line in (line for chat in _CHAT.finditer(text) for line in chat.group(2).splitlines()):
        if line.startswith("[") and (each := _read_bracketed(line)):
            found.append(each)
        elif found and line.startswith(_SET_IN):
            found[-1] = _longer(found[-1], line.strip())
    return found


def read_quoted(text: str) -> list[Utterance]:
    """Return only the `[Name, time] text` lines: the one form that is no ordinary prose."""
    return [each for line in text.splitlines() if (each := _read_bracketed(line))]


def role_of(speaker: str | None) -> str | None:
    """`user` or `assistant` where a transcript labels its lines by role."""
    return _ROLES.get(speaker.lower()) if speaker else None


def _read_bracketed(line: str) -> Utterance | None:
    match = _BRACKETED.match(line.strip())
    if not match:
        return None
    replying = _REPLYING.search(f", {match.group(2)}")
    return Utterance(match.group(3).strip(), match.group(1).strip(), replying.group(1).strip() if replying else None)


def _longer(each: Utterance, line: str) -> Utterance:
    return Utterance(f"{each.text}\n{line}", each.speaker, each.replying_to)


def _read_named(line: str) -> Utterance | None:
    match = _NAMED.match(line.strip())
    if not match:
        return None
    name = match.group(1)
    if role_of(name):
        return Utterance(match.group(2).strip(), name)
    parts = name.split()
    if not all(part[0].isupper() for part in parts) or any(part.lower() in LABELS for part in parts):
        return None
    return Utterance(match.group(2).strip(), name)

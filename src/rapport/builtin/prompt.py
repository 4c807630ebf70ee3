"""Read what the model was given: instructions, sources, memories, who said what, and what is asked of it now."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from rapport.domain.server_note import split_note, strip_note
from rapport.domain.synthetic import is_synthetic
from rapport.domain.text_bounds import shorten

MAX_TURN_CHARACTERS = 2_000
"""The number of characters that are read of one message, from its beginning and its end."""
SUMMARY_SECTIONS = ("User said", "Goals", "Resolved", "Outstanding")
"""The beginnings of the lines of this model's own summaries."""
_MAX_CHARACTERS = 50_000
_ASKS_SUMMARY = "Summarize conversation so far highlighting user goals"
_SUMMARY_TASK = "\n\n(End of the conversation."
_ANCHOR = "User is replying to this specific message: '"
_GROUP = "This is a group chat."
_MEMORY_WORDS = ("remember", "memories", "known about", "told you")
_IMAGE_TYPES = frozenset({"image", "image_url", "input_image"})
# Characters that reverse the direction of writing: repeating them would reverse the text after them.
_WITHOUT_DIRECTION = dict.fromkeys([0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF])


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a person or of the agent."""

    role: Literal["user", "assistant"]
    text: str
    speaker: str | None = None
    replying_to: str | None = None
    """The name of the person whose message it replies to, where the chat says so."""
    has_image: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A document that the prompt quotes, with the id to cite it by."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that the model was given. Messages that the system wrote to itself are not among the turns."""

    instructions: str
    """The system prompt without what it quotes: a source is a source and nothing else."""
    turns: tuple[Turn, ...]
    sources: tuple[Source, ...] = ()
    memories: tuple[str, ...] = ()
    trigger_type: str | None = None
    earlier_summary: str | None = None
    """The summary that a new one continues, which may be empty; None if no summary is wanted."""
    anchor: str | None = None
    """The message that the person replies to."""

    @property
    def is_group(self) -> bool:
        return _GROUP in self.instructions

    @property
    def is_strict(self) -> bool:
        return "Use ONLY the provided source documents" in self.instructions

    @property
    def last(self) -> Turn | None:
        return next((turn for turn in reversed(self.turns) if turn.role == "user"), None)

    @property
    def earlier(self) -> tuple[Turn, ...]:
        """Return the messages of people before the newest one."""
        return tuple(turn for turn in self.turns if turn.role == "user")[:-1]

    @property
    def replies(self) -> tuple[str, ...]:
        return tuple(turn.text for turn in self.turns if turn.role == "assistant")


def read_prompt(messages: Sequence[BaseMessage]) -> Prompt:
    """Read any list of messages; odd content never raises."""
    system = "\n\n".join(_get_text(message) for message in messages if isinstance(message, SystemMessage))
    people = [message for message in messages if isinstance(message, HumanMessage)]
    # The server's note beside the newest message has memories and passages.
    system += "".join(f"\n\n{split_note(str(message.text))[0]}" for message in people[-1:])
    instructions, sources = _split_sources(system[:_MAX_CHARACTERS])
    if _ASKS_SUMMARY in instructions:
        transcript = "\n".join(_get_text(message) for message in people)
        transcript = transcript.rpartition(_SUMMARY_TASK)[0] or transcript
        earlier, _, lines = f"\n\n{transcript}".rpartition("\n\n")
        turns = map(_read_named_line, filter(str.strip, lines[:_MAX_CHARACTERS].splitlines()))
        return Prompt(instructions, tuple(turns), earlier_summary=earlier.strip().removeprefix("Summary so far:\n"))
    is_triggered = bool(people) and is_synthetic(people[-1])
    context = "\n".join(
        _get_text(message) for message in people if message.additional_kwargs.get("lc_source") == "context"
    )
    anchors = (line[len(_ANCHOR) :] for line in context.splitlines() if line.startswith(_ANCHOR))
    return Prompt(
        instructions,
        tuple(turn for message in messages for turn in _read_message(message, is_group=_GROUP in instructions)),
        tuple(sources),
        tuple(_find_memories(instructions.splitlines())),
        str(people[-1].additional_kwargs.get("trigger_type")) if is_triggered else None,
        anchor=next((shorten(line.rstrip().removesuffix("'"), MAX_TURN_CHARACTERS) for line in anchors), None),
    )


def _split_sources(system: str) -> tuple[str, list[Source]]:
    """Return the text outside of `<<<` and `>>>`, and each text between them that has a `[source: id]` line above it."""
    outside: list[str] = [""]
    sources: list[Source] = []
    inside: list[str] | None = None
    for line in system.splitlines():
        if inside is None and not line.startswith("<<<"):
            outside.append(line)
            continue
        is_end = line.endswith(">>>")
        inside = [] if inside is None else inside
        inside.append(line.removesuffix(">>>").removeprefix("<<<"))
        if is_end:
            name = outside[-1].removeprefix("[source:").removesuffix("]").strip()
            if outside[-1].startswith("[source:") and name.replace("-", "").replace("_", "").isalnum():
                sources.append(Source(name, "\n".join(inside).strip()))
            inside = None
    return "\n".join(outside), sources


def _find_memories(lines: Iterable[str]) -> Iterator[str]:
    """Yield the list items below a heading that speaks of remembering."""
    is_listed = False
    for line in filter(str.strip, lines):
        if is_listed and line.startswith("- "):
            yield line[2:].strip()[:MAX_TURN_CHARACTERS]
        else:
            heading = line[-200:].rstrip().lower()
            is_listed = heading.endswith(":") and any(word in heading for word in _MEMORY_WORDS)


def _read_message(message: BaseMessage, *, is_group: bool) -> list[Turn]:
    text = _get_text(message)
    if isinstance(message, AIMessage):
        return [Turn("assistant", shorten(text, MAX_TURN_CHARACTERS))] if text.strip() else []
    if not isinstance(message, HumanMessage) or is_synthetic(message):
        return []
    origin = message.additional_kwargs.get("lc_source")
    if origin == "summarization":
        told = (line.partition(": ") for line in text.splitlines())
        return [
            Turn("user", item) for name, _, items in told if name in SUMMARY_SECTIONS[:2] for item in items.split("; ")
        ]
    if origin == "context":
        code, _, chat = text.partition("<<<chat ")[2].partition("\n")
        return _read_chat(chat.partition(f"\nchat {code}>>>")[0])
    turn = next(iter(_read_chat(text) if is_group else ()), None) or Turn("user", _drop_mentions(text))
    return [Turn("user", turn.text, turn.speaker, turn.replying_to, _has_image(message))]


def _read_chat(chat: str) -> list[Turn]:
    """Return the messages of lines like `[Ana, Mon 10:00, replying to Ben] text`; an indented line continues a message."""
    found: list[tuple[list[str], list[str]]] = []
    for line in chat.splitlines():
        head, closed, text = line[1:].partition("]")
        if line.startswith("[") and closed and ", " in head:
            found.append((head.split(", "), [text.strip()]))
        elif found and line.startswith("  "):
            found[-1][1].append(line.strip())
    return [_make_turn(head, "\n".join(lines).strip()) for head, lines in found]


def _make_turn(head: Sequence[str], text: str) -> Turn:
    if head[0].startswith("you ("):  # the agent's own label; no name has a parenthesis there
        return Turn("assistant", shorten(text, MAX_TURN_CHARACTERS))
    replied = next((part[12:].partition(" #")[0] for part in head if part.startswith("replying to ")), None)
    return Turn("user", _drop_mentions(text), None if head[0] == "someone" else head[0], replied)


def _drop_mentions(text: str) -> str:
    """Return the beginning and the end of a message, without the handles at its beginning."""
    text = shorten(text, MAX_TURN_CHARACTERS).strip()
    while text.startswith("@") and text[1:2].isalnum():
        text = text.partition(" ")[2].lstrip(" ,:")
    return text


def _read_named_line(line: str) -> Turn:
    speaker, named, text = line[:MAX_TURN_CHARACTERS].partition(": ")
    if not named or len(speaker) > 80:
        return Turn("user", line[:MAX_TURN_CHARACTERS])
    return (
        Turn("assistant", text)
        if speaker == "Assistant"
        else Turn("user", text, None if speaker == "User" else speaker)
    )


def _get_text(message: BaseMessage) -> str:
    text = str(message.text).translate(_WITHOUT_DIRECTION)
    return strip_note(text) if isinstance(message, HumanMessage) else text


def _has_image(message: BaseMessage) -> bool:
    content = cast("list[Any] | str", message.content)  # pyright: ignore[reportUnknownMemberType]
    return any(
        isinstance(block, dict) and cast("dict[str, Any]", block).get("type") in _IMAGE_TYPES for block in content
    )

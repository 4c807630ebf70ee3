"""Read once what the model was given: the prompt, who said what, and what is asked of it now."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from rapport.builtin.speakers import Utterance, chat_in, read_quoted, role_of, utterances
from rapport.domain.server_note import strip_note
from rapport.domain.synthetic import is_synthetic
from rapport.domain.text_bounds import collapse_runs, limit_text, shorten

SUMMARY_PROMPT = (
    "Summarize conversation so far highlighting user goals, resolved questions, outstanding issues, "
    "and relevant source ids. Keep <= 180 tokens."
)

TURN_CHARACTERS = 2_000
"""A turn is read at its beginning and its end: what people ask stands there, and the work stays bounded."""
_SYSTEM_LIMIT = 100_000
_MENTION = re.compile(r"^(?:@[\w-]+[\s,:]*)+")
_ANCHOR = re.compile(r"User is replying to this specific message: ['\"‘“](.{1,2000}?)['\"’”]\s*+(?:$|\n)", re.DOTALL)
_FENCED = re.compile(r"<<<.*?(?:>>>|\Z)", re.DOTALL)
_SAID = re.compile(r"^(?:User said|Goals): (.+)$", re.MULTILINE)
_GROUP = "This is a group chat."
# Signs that turn the direction of writing around: whoever repeats them turns around what stands behind them.
_TURNS_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_OWN = "you ("
"""The beginning of the agent's own lines in a quoted chat; no name has a parenthesis there."""
_IMAGE_KINDS = frozenset({"image", "image_url", "input_image"})

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance of a person or of the agent."""

    role: Role
    text: str
    speaker: str | None = None
    image: bool = False
    replying_to: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A conversation as the model sees it; nothing the system wrote to itself is in `turns`."""

    system: str
    turns: tuple[Turn, ...]
    trigger: str | None = None
    summary_wanted: bool = False
    anchor: str | None = None
    group: bool = False

    @property
    def instructions(self) -> str:
        """Return the prompt without what it quotes: a source is read as a source and as nothing else."""
        return _unquote(self.system)

    @property
    def last(self) -> Turn | None:
        """Return the latest thing a person said."""
        return next((turn for turn in reversed(self.turns) if turn.role == "user"), None)

    @property
    def earlier(self) -> tuple[Turn, ...]:
        """Return what people said before that."""
        return tuple(turn for turn in self.turns if turn.role == "user")[:-1]

    @property
    def replies(self) -> tuple[str, ...]:
        return tuple(turn.text for turn in self.turns if turn.role == "assistant")


def read(messages: Sequence[BaseMessage]) -> Window:
    """Read any list of messages; never fails on odd content."""
    system = "\n\n".join(_text(m) for m in messages if isinstance(m, SystemMessage))
    system = collapse_runs(system[:_SYSTEM_LIMIT])
    instructions = _unquote(system)
    wanted = _wants_summary(instructions, messages)
    people = [message for message in messages if isinstance(message, HumanMessage)]
    trigger: str | None = None
    if people and is_synthetic(people[-1]):
        trigger = str(people[-1].additional_kwargs.get("trigger_type") or "check_in")
    turns = [turn for message in messages for turn in _turns(message, as_transcript=wanted)]
    told = [instructions, *(_unquote(_text(message)) for message in people if _is_beforehand(message))]
    told += [turn.text for turn in turns[-1:]]
    anchor = next((found for text in told if (found := _ANCHOR.search(text))), None)
    return Window(
        system=system,
        turns=tuple(_drop_anchor(turn) for turn in [*_overheard(instructions, turns), *turns]),
        trigger=trigger,
        summary_wanted=wanted,
        anchor=anchor.group(1).strip() if anchor else None,
        group=_GROUP in instructions,
    )


def _unquote(system: str) -> str:
    return _FENCED.sub("", system)


def _wants_summary(instructions: str, messages: Sequence[BaseMessage]) -> bool:
    if SUMMARY_PROMPT in instructions:
        return True
    last = _text(messages[-1]).strip() if messages else ""
    return last.startswith(SUMMARY_PROMPT) or last.endswith(SUMMARY_PROMPT)


def _turns(message: BaseMessage, *, as_transcript: bool) -> list[Turn]:
    if isinstance(message, AIMessage):
        return [Turn("assistant", limit_text(_text(message), TURN_CHARACTERS))] if _text(message).strip() else []
    if not isinstance(message, HumanMessage) or is_synthetic(message):
        return []
    if _is_summary(message):
        return _recall_summary(_text(message))
    if _is_beforehand(message):
        return [_chat_turn(each) for each in chat_in(_text(message)) if each.text.strip()]
    text = _text(message).replace(SUMMARY_PROMPT, "") if as_transcript else _text(message)
    text = shorten(text, TURN_CHARACTERS)
    image = _has_image(message)
    said = [each for each in utterances(text) if each.text.strip() or image]
    if not said:
        return [] if as_transcript else [Turn("user", "", message.name, image)]
    return [_turn(each, message.name, image, as_transcript=as_transcript) for each in said]


def _is_summary(message: HumanMessage) -> bool:
    """Return what stands for earlier messages."""
    return message.additional_kwargs.get("lc_source") == "summarization"


def _is_beforehand(message: HumanMessage) -> bool:
    """Return what quotes the chat before a call, and names the message that it replies to."""
    return message.additional_kwargs.get("lc_source") == "context"


def _chat_turn(each: Utterance) -> Turn:
    if each.speaker is not None and each.speaker.startswith(_OWN):
        return Turn("assistant", limit_text(each.text, TURN_CHARACTERS))
    text = _MENTION.sub("", limit_text(each.text, TURN_CHARACTERS)).strip()
    return Turn("user", text, _name_speaker(each.speaker), replying_to=_name_speaker(each.replying_to))


def _recall_summary(summary: str) -> list[Turn]:
    """Return what a summary of this model's own holds of what people said, in their words; of others' summaries nothing."""
    items = (item for said in _SAID.findall(summary) for item in said.rstrip(" .").split("; "))
    return [_turn(each, None, False, as_transcript=False) for item in items for each in utterances(item)]


def _turn(each: Utterance, name: str | None, image: bool, *, as_transcript: bool) -> Turn:
    role = role_of(each.speaker)
    said = limit_text(each.text, TURN_CHARACTERS)
    if role:
        # Only a transcript handed over for summing up speaks for the agent; a chat message cannot.
        return Turn("assistant" if role == "assistant" and as_transcript else "user", said, name, image)
    text = _MENTION.sub("", said.strip()).strip()
    return Turn("user", text, _name_speaker(each.speaker) or name, image, _name_speaker(each.replying_to))


def _name_speaker(speaker: str | None) -> str | None:
    """Return a speaker, unless it is one whom the chat has no name for."""
    return None if speaker == "someone" else speaker


def _overheard(system: str, turns: Sequence[Turn]) -> list[Turn]:
    """Chat lines quoted in the prompt that are not among the turns themselves."""
    if "[" not in system:
        return []
    known = {turn.text.strip() for turn in turns}
    return [
        Turn("user", text, each.speaker)
        for each in read_quoted(system)
        if (text := _MENTION.sub("", limit_text(each.text, TURN_CHARACTERS)).strip()) and text not in known
    ]


def _drop_anchor(turn: Turn) -> Turn:
    if turn.role == "assistant" or "replying to this specific message" not in turn.text:
        return turn
    return Turn(turn.role, _MENTION.sub("", _ANCHOR.sub("", turn.text).strip()), turn.speaker, turn.image)


def _blocks(message: BaseMessage) -> list[Any]:
    content = cast("str | list[Any]", message.content)  # pyright: ignore[reportUnknownMemberType]
    return [content] if isinstance(content, str) else content


def _text(message: BaseMessage) -> str:
    pieces: list[str] = []
    for block in _blocks(message):
        if isinstance(block, str):
            pieces.append(block)
        elif isinstance(block, dict):
            text = cast("dict[str, Any]", block).get("text")
            pieces.extend([text] if isinstance(text, str) else [])
    text = "\n".join(pieces)
    return _TURNS_DIRECTION.sub("", strip_note(text) if isinstance(message, HumanMessage) else text)


def _has_image(message: BaseMessage) -> bool:
    return any(
        isinstance(block, dict) and cast("dict[str, Any]", block).get("type") in _IMAGE_KINDS
        for block in _blocks(message)
    )

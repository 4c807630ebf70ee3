"""List the forms of machinery in replies: tags of thoughts and calls, special tokens, and words that introduce a call.

The forms are those of model cards and of the parsers of public model servers; `tests/replies/recorded_forms.py` has an example
and the origin of each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import regex

Kind = Literal["thought", "call", "result", "channel", "token", "end"]


def _read_words(text: str, separator: str | None = None) -> tuple[str, ...]:
    return tuple(" ".join(word.split()) for word in text.split(separator))


_THOUGHTS = _read_words("""
think thinking thought thoughts reasoning reason reflection scratchpad inner_monologue analysis antthinking chain_of_thought
internal_thought seed:think mm:think
""")
_CALLS = _read_words("""
tool_call tool_calls function_call function_calls toolcall toolcalls tool_use tool_code tool_request functioncall invoke
antml:invoke antml:function_calls minimax:tool_call seed:tool_call longcat_tool_call function call_tool use_tool execute_tool
xml_tool_call glm:tool_call tool
""")
_RESULTS = _read_words("tool_response tool_result tool_results function_response function_result function_results")
_END_TOKENS = _read_words("""
<|im_end|> <|eot_id|> <|endoftext|> <|end_of_text|> <|end|> <|return|> <|user|> <|eot|> <|eom_id|> <end_of_turn> <eos>
<|END_OF_TURN_TOKEN|> <|end_of_turn|> <|eom|> <｜end▁of▁sentence｜> <|endofprompt|> <end_of_utterance> <|im_user|> <|observation|>
<turn|> <|END_RESPONSE|>
""")
_TOKENS = _read_words("<s> </s> <bos> <pad> <unk> <start_of_turn> <<SYS>> <</SYS>> [INST] [/INST] <mask> <|turn>model")

_PAIRS: Final[dict[str, tuple[Kind, tuple[str, ...]]]] = {
    "[THINK]": ("thought", ("[/THINK]",)),
    "[TOOL_CALLS]": ("call", ("[/TOOL_CALLS]", "</s>")),
    "[TOOL_REQUEST]": ("call", ("[END_TOOL_REQUEST]",)),
    "[Server note: ": ("result", ("]",)),  # our own note in the prompt, which weak models copy
    "[Server note, up to the line “— end of note —”: ": ("result", ("\n— end of note —",)),
    "[TOOL_RESULTS]": ("result", ("[/TOOL_RESULTS]",)),
    "◁think▷": ("thought", ("◁/think▷",)),
    "<|channel>thought": ("thought", ("<channel|>",)),
    "<unused94>thought": ("thought", ("<unused95>",)),
    "<|begin_of_thought|>": ("thought", ("<|end_of_thought|>",)),
    "<|START_THINKING|>": ("thought", ("<|END_THINKING|>",)),
    "<|inner_prefix|>": ("thought", ("<|inner_suffix|>",)),
    "<|START_ACTION|>": ("call", ("<|END_ACTION|>",)),
    "<|tool_call|>": ("call", ("<|/tool_call|>", "<|tool_call_end|>", "<|eot_id|>")),
    "<|tool_call>": ("call", ("<tool_call|>",)),
    "<|tool_response>": ("result", ("<tool_response|>",)),
    "<|tool_call_start|>": ("call", ("<|tool_call_end|>",)),
    "<|tool_calls_prefix|>": ("call", ("<|tool_calls_suffix|>",)),
    "<|tool_calls_section_begin|>": ("call", ("<|tool_calls_section_end|>",)),
    "<|tool_call_begin|>": ("call", ("<|tool_call_end|>",)),
    "<|action_start|>": ("call", ("<|action_end|>",)),
    "<|python_tag|>": ("call", ("<|eom_id|>", "<|eot_id|>")),
    "<｜tool▁calls▁begin｜>": ("call", ("<｜tool▁calls▁end｜>",)),
    "<｜tool▁call▁begin｜>": ("call", ("<｜tool▁call▁end｜>",)),
    "<｜DSML｜function_calls>": ("call", ("</｜DSML｜function_calls>",)),
    "<｜DSML｜tool_calls>": ("call", ("</｜DSML｜tool_calls>",)),
    "<start_function_call>": ("call", ("<end_function_call>",)),
    "<|channel|>": ("channel", ("<|message|>",)),
    "<|start|>": ("channel", ("<|message|>",)),
}
_MARKS: Final[dict[str, Kind]] = {
    **dict.fromkeys(_END_TOKENS, "end"),
    **dict.fromkeys(_TOKENS, "token"),
    **{mark: kind for mark, (kind, _) in _PAIRS.items()},
}
_BY_LENGTH = sorted(_MARKS, key=len, reverse=True)
_ELEMENTS: Final[dict[str, Kind]] = {
    **dict.fromkeys(_THOUGHTS, "thought"),
    **dict.fromkeys(_CALLS, "call"),
    **dict.fromkeys(_RESULTS, "result"),
}
_ELEMENT = re.compile(r"<([A-Za-z][\w:]{0,30}+)(?:[=\s][^<>\n]{0,120}+)?>")
_TOKEN = re.compile(r"<[|｜][^\s<>|｜](?:[^<>|｜\n]{0,40}+)[|｜]>")
_UNFINISHED_ELEMENT = re.compile(r"<(/?[A-Za-z][\w:]{0,30}+)([=\s][^<>\n]{0,120}+)?\Z")
_UNFINISHED_TOKEN = re.compile(r"<[|｜][^\s<>|｜]?[^<>|｜\n]{0,40}+[|｜]?\Z")
_CLOSES_ELEMENT = re.compile(r"</([A-Za-z][\w:]{0,30}+)>")

CLOSES_THOUGHT: Final = re.compile(
    "|".join(
        [rf"</(?:{'|'.join(_THOUGHTS)})>"]
        + [re.escape(closer) for kind, closers in _PAIRS.values() if kind == "thought" for closer in closers]
    ),
    re.IGNORECASE,
)
OPENS_THOUGHT: Final = re.compile(
    "|".join(
        [rf"<(?:{'|'.join(_THOUGHTS)})(?:[=\s][^<>\n]{{0,120}}+)?>"]
        + [re.escape(opener) for opener, (kind, _) in _PAIRS.items() if kind == "thought"]
        + [re.escape("<|channel|>")]
    ),
    re.IGNORECASE,
)
ENDS_CHANNEL: Final = re.compile(r"<\|(?:end|call|return|channel|start)\|>")
ROLE: Final = re.compile(r"\s{0,3}(?:assistant|model|bot|ai)?\s{0,3}(?:<\|end_header_id\|>)?", re.IGNORECASE)
TAKES_ROLE: Final = frozenset(
    {"<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|im_assistant|>", "<|header_start|>"}
)
ROLE_LABEL: Final = re.compile(r"assistant:(?:\s|\Z)", re.IGNORECASE)
MAX_CLOSER_CHARACTERS: Final = 40

STARTS_IN_THOUGHT: Final = re.compile(
    r"(?:okay|ok|alright|hmm|well|so|first)?,? ?(?:so )?(?:the user|we need to|i need to (?:figure|think|respond|recall)"
    r"|let me (?:think|see|break|start by)|let's (?:think|see|break)|user (?:says|asks|wants))\b",
    re.IGNORECASE,
)
CHANNEL_NAMES_AS_TEXT: Final = re.compile(r"(?:analysis(?=[^\sa-z,.:;!?'’)-])|commentary ?to=functions\.)")
_BEGINNINGS: Final = (
    regex.compile(rf"{STARTS_IN_THOUGHT.pattern}.", regex.IGNORECASE),
    regex.compile(r"(?:analysis|commentary ?to=functions\.)."),
    regex.compile(r"assistant:\s.", regex.IGNORECASE),
)


def may_become_opening(text: str) -> bool:
    """Return True if the text may be the beginning of a thought that has no opening tag, or of a role's label."""
    matches = (pattern.fullmatch(text, partial=True) for pattern in _BEGINNINGS)
    return any(match is not None and match.partial for match in matches)


FINAL_CHANNEL_AS_TEXT: Final = re.compile("assistantfinal")

INTRODUCTIONS: Final = _read_words(
    """here's|here is|here are|here’s|you can use|you can call|to use the|to call the|to save|to remember|to store|to do this
|i will use|i'll use|i’ll use|i will call|i'll call|i’ll call|let me use|let me call|let me save|let me store|let's use|let's call
|i'm going to|i am going to|i can use|i need to use|i need to call|i should use|i should call|we can use|sure, here|sure! here
|certainly! here|using the|calling|tool call|function call|tool:|function:|thought:|the function|this function|the following
|for this|based on|i have used|i used|use the|call the|in order to|please use|please call|as a function call|the json|json
|output:|response:|assistant:|i've saved|i have saved|to answer""",
    "|",
)
"""The beginnings of sentences that are held back until it is known whether a call follows them."""
TALKS_OF_CALLS: Final = re.compile(
    r"\b(?:function|tool)(?:s|[ _-]?calls?)?\b|\bJSON\b|\bAPI\b|^\W*thought\b|\bmemory\b.{0,20}:\s*\Z", re.IGNORECASE
)
CALL_LANGUAGES: Final = _read_words("tool_code tool_call tool_calls function_call function_calls tool_use tool")
DATA_LANGUAGES: Final = (
    "",
    *_read_words("json jsonc json5 python py javascript js xml html text plaintext txt yaml bash sh"),
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A tag or token of machinery: its kind, its length and the text that closes it."""

    kind: Kind
    text: str
    closer: re.Pattern[str] | None = None


def find_mark(text: str) -> Mark | None:
    """Return the mark that the text begins with."""
    for mark in _BY_LENGTH:
        if text.startswith(mark):
            kind = _MARKS[mark]
            closers = _PAIRS[mark][1] if mark in _PAIRS else ()
            return Mark(kind, mark, _make_closer(kind, closers))
    if match := _ELEMENT.match(text):
        name = match[1].lower()
        kind = _ELEMENTS.get(name)
        if kind is not None and _may_be_element(name, match.group()):
            return Mark(kind, match.group(), _make_closer(kind, (f"</{match[1]}>",)))
    if (match := _CLOSES_ELEMENT.match(text)) and match[1].lower() in _ELEMENTS:
        return Mark("thought" if _ELEMENTS[match[1].lower()] == "thought" else "token", match.group())
    if match := CLOSES_THOUGHT.match(text):
        return Mark("thought", match.group())
    if match := _TOKEN.match(text):
        return Mark("token", match.group())
    return None


def may_become_longer_mark(text: str) -> bool:
    """Return True if more text may complete a mark, or make it a longer one."""
    if any(len(mark) > len(text) and mark.startswith(text) for mark in _BY_LENGTH) or text in ("<", "</"):
        return True
    if match := _UNFINISHED_ELEMENT.match(text):
        name = match[1].lower().lstrip("/")
        return name in _ELEMENTS if match[2] else any(known.startswith(name) for known in _ELEMENTS)
    return _UNFINISHED_TOKEN.match(text) is not None


def _may_be_element(name: str, tag: str) -> bool:
    """Return True unless the tag is one of HTML or of ordinary XML: `<function>` and `<tool>` need a name to be a call."""
    return name not in {"function", "tool"} or re.match(r"<\w+(?:=|\s+name=)", tag) is not None


def _make_closer(kind: Kind, closers: tuple[str, ...]) -> re.Pattern[str] | None:
    if kind == "thought":
        return CLOSES_THOUGHT
    return re.compile("|".join(map(re.escape, closers)), re.IGNORECASE) if closers else None

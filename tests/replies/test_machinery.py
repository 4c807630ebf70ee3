"""Test that no machinery is left in a reply, however it is cut into pieces, and that ordinary text is not touched."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from rapport.replies.leading_thought import MAX_HELD_THOUGHT_CHARACTERS
from rapport.replies.machinery import MachineryFilter, cut_machinery
from rapport.replies.machinery_decisions import MAX_HELD_CHARACTERS
from rapport.replies.written_calls import WrittenCall
from tests.replies.ordinary_replies import ORDINARY
from tests.replies.recorded_forms import ASKED, CALLS, FACT, RECORDED, SAID, SAVE, THOUGHTS, TOOLS, Recorded
from tests.support.cases import every_case
from tests.support.growth import assert_in_proportion, least_cpu_seconds


def read_in_pieces(pieces: Iterable[str]) -> tuple[str, tuple[WrittenCall, ...]]:
    """Return the visible text and the calls of a reply that arrives in these pieces."""
    reply = MachineryFilter(TOOLS)
    text = "".join([*map(reply.feed, pieces), reply.finish()])
    return (text[reply.thought_end :].lstrip() if reply.thought_end else text), tuple(reply.calls)


def split_every(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def test_there_are_enough_examples() -> None:
    assert len({each.origin for each in RECORDED}) >= 60
    assert len(CALLS) >= 16
    assert len(THOUGHTS) >= 10
    assert len(set(ORDINARY)) >= 45


@every_case("recorded", RECORDED)
def test_no_recorded_machinery_is_left(recorded: Recorded) -> None:
    visible = cut_machinery(recorded.text, TOOLS)
    assert (visible.text, visible.calls) == (recorded.visible, recorded.calls), recorded.origin


@every_case("recorded", RECORDED)
def test_every_cutting_of_a_recorded_reply_gives_the_same(recorded: Recorded) -> None:
    text, expected = recorded.text, (recorded.visible, recorded.calls)
    cuttings = [split_every(text, size) for size in (1, 2, 3, 4, 5, 7, 13, 40)]
    cuttings += [[text[:at], text[at:]] for at in range(1, len(text))]
    for pieces in cuttings:
        assert read_in_pieces(pieces) == expected, (recorded.origin, pieces)


@every_case("recorded", RECORDED)
def test_no_part_of_machinery_is_streamed(recorded: Recorded) -> None:
    reply = MachineryFilter(TOOLS)
    shown = ""
    for character in recorded.text:
        shown += reply.feed(character)
        assert recorded.visible.startswith(shown), recorded.origin


@every_case("text", ORDINARY)
def test_ordinary_text_is_not_touched(text: str) -> None:
    assert cut_machinery(text, TOOLS).text == text
    for size in (1, 2, 3, 5, 8, 21):
        assert read_in_pieces(split_every(text, size)) == (text, ())


@every_case("text", ORDINARY)
def test_ordinary_text_around_a_call_stays(text: str) -> None:
    if text.count("```") % 2 or text.startswith("An unclosed"):
        return  # everything after it is code
    call = '<tool_call>{"name": "upsert_memory", "arguments": {"content": "' + FACT + '"}}</tool_call>'
    visible = cut_machinery(f"{text}\n\n{call}", TOOLS)
    assert visible.calls == (SAVE,)
    assert text.startswith(visible.text)
    assert text[len(visible.text) :].strip() == ""


def test_a_call_in_code_counts_only_with_arguments_that_fit() -> None:
    fits = f'```python\nupsert_memory(content="{FACT}")\n```'
    assert cut_machinery(fits, TOOLS).text == ""
    for other in (
        'upsert_memory(text="x")',
        "upsert_memory()",
        "upsert_memory(load())",
        'upsert_memory("x")\nprint(1)',
    ):
        code = f"```python\n{other}\n```"
        assert cut_machinery(code, TOOLS).text == code


def test_a_thought_that_only_ends_is_cut_out_of_a_finished_reply() -> None:
    thought = "They made lasagne. " * 200
    visible = cut_machinery(f"{thought}</think>{SAID}", TOOLS)
    assert (visible.text, visible.began_in_thought) == (SAID, True)
    assert not cut_machinery(f"<think>{thought}</think>{SAID}", TOOLS).began_in_thought


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_the_beginning_is_held_back_for_a_model_that_begins_in_a_thought(sizes: list[int]) -> None:
    thought = 'They made lasagne. {"name": "upsert_memory", "arguments": {"content": "x"}} ' * 20
    text, pieces = f"{thought}</think>\n{SAID}", list[str]()
    for size in itertools.cycle(sizes):
        pieces.append(text[:size])
        if not (text := text[size:]):
            break
    reply = MachineryFilter(TOOLS, begins_in_thought=True)
    assert "".join([*map(reply.feed, pieces), reply.finish()]) == SAID
    assert (reply.calls, reply.thought_end, reply.began_in_thought) == ([], 0, True)


def test_a_beginning_without_end_is_shown_once_it_is_too_long_for_a_thought() -> None:
    reply = MachineryFilter(TOOLS, begins_in_thought=True)
    assert reply.feed("word " * (MAX_HELD_THOUGHT_CHARACTERS // 5)) == ""
    assert reply.feed("more words") != ""
    assert not reply.began_in_thought


def test_a_call_without_end_does_not_hold_text_back_for_ever() -> None:
    beginning = '{"arguments": {"text": "'
    reply = MachineryFilter(TOOLS)
    pieces = [beginning, *["word "] * MAX_HELD_CHARACTERS]
    shown = "".join(map(reply.feed, pieces))
    assert len(shown) > len("".join(pieces)) - 2 * MAX_HELD_CHARACTERS
    assert shown + reply.finish() == "".join(pieces)


def test_a_long_call_without_end_is_cut_out_to_the_next_paragraph() -> None:
    call = '{"name": "upsert_memory", "arguments": {"content": "' + "long " * MAX_HELD_CHARACTERS
    assert cut_machinery(f"{SAID}\n{call}\n\n{ASKED}", TOOLS).text == f"{SAID}\n{ASKED}"


_MARKS = """
< > [ ] { } ` ~ " ' : . ( t o= word final <think> </think> <tool_call> </tool_call> ```json ``` "upsert_memory"
,"arguments":{"content":"x"}} upsert_memory (content='x') Here's Action: <|im_end|> <|channel|> <|message|> to=functions.
[TOOL_CALLS] Thought: <s> </s> analysis commentary <|start|> <|python_tag|>
"""
_LONGER = [
    "{}",
    "assistant: ",
    '{"name": "remember", "arguments": {}}',
    " ",
    "\n",
    "\n\n",
    "```json\n",
    "\n```",
    '{"name": "upsert_memory", ',
    "Here's the function: ",
    "Action: upsert_memory\n",
]
_PARTS = st.sampled_from([*_MARKS.split(), *_LONGER])


@settings(max_examples=400, deadline=None)
@given(st.lists(_PARTS, max_size=25), st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_every_cutting_of_any_text_gives_the_same(parts: list[str], sizes: list[int]) -> None:
    text = "".join(parts)
    pieces: list[str] = []
    while text:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[:size])
        text = text[size:]
    whole = cut_machinery("".join(parts), TOOLS)
    assert read_in_pieces(pieces) == (whole.text, whole.calls)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="abc XYZ.,!?\n", max_size=200))
def test_plain_words_are_never_changed(text: str) -> None:
    assert cut_machinery(text, TOOLS).text == text


@every_case(
    "unit",
    [
        "<",
        "`",
        "{",
        "[",
        '{"name": "',
        "<think>",
        "```json\n",
        "Here's ",
        "a. ",
        "upsert_memory(",
        "\n",
        "<|x",
        "to=",
        " ",
    ],
)
def test_the_time_grows_with_the_length(unit: str) -> None:
    def read(text: str) -> None:
        read_in_pieces(split_every(text, 4))

    assert_in_proportion(read, unit * (4_000 // len(unit)), unit * (32_000 // len(unit)), times=8)


def test_ordinary_text_costs_almost_nothing() -> None:
    words = ["word "] * 10_000
    assert least_cpu_seconds(lambda: read_in_pieces(words)) < 0.2  # 20 µs a token; measured: about 2

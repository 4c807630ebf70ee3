"""Test that marks of the prompt, which a model repeats, are no part of its reply, however it is cut into pieces."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rapport.context.fence import fence
from rapport.domain.tool import ToolSpec
from rapport.replies.echoes import EchoFilter, cut_echoes
from rapport.turns.outside_tools import quote_result
from tests.support.cases import every_case
from tests.support.growth import assert_in_proportion

READ = ToolSpec("files__read", "Read a file.", {"type": "object"}, "outside", only_reads=True, server="files")
RESULT = quote_result(READ, "Buy basil.", is_error=False, citable_ids=())
ERROR = quote_result(READ, "No such file.", is_error=True, citable_ids=())
CHAT = fence("Ann: hello", seed="x")
REPEATED = [
    (RESULT, "Buy basil.\n"),
    (f"It says:\n{RESULT}\nDone.", "It says:\nBuy basil.\nDone."),
    (RESULT.replace("\n", " "), "  Buy basil. "),
    (f"Sorry. {ERROR}", "Sorry. No such file.\n"),
    (CHAT, "Ann: hello\n"),
    ("I know.\n— end of note —\nHello!", "I know.\nHello!"),
    (f"{RESULT}\n— end of note —", "Buy basil.\n"),
]
ORDINARY = [
    "The tool's result is 5.",
    "tool deadbeef01 >>> done",
    "<<<EOF\ntext\nEOF",
    "A multitool 0123456789>>>",
    "— end of story —",
    "The tool's result, quoted as data from the server",
    "cat a.txt >>> b.txt",
]
PIECES = st.lists(
    st.sampled_from(["<<<", "tool ", "0123456789", ">>>", "\n", "— end of note —", "— e", "The tool", "a"])
)


@every_case(("text", "shown"), REPEATED)
def test_the_quoted_text_stays_without_its_marks(text: str, shown: str) -> None:
    assert cut_echoes(text) == shown


@every_case("text", ORDINARY)
def test_ordinary_text_is_not_touched(text: str) -> None:
    assert cut_echoes(text) == text


@every_case("text", [*(text for text, _ in REPEATED), *ORDINARY])
def test_every_cutting_gives_the_same(text: str) -> None:
    for first, second in itertools.combinations(range(len(text) + 1), 2):
        echoes = EchoFilter()
        shown = [echoes.feed(piece) for piece in (text[:first], text[first:second], text[second:])]
        assert "".join([*shown, echoes.finish()]) == cut_echoes(text), (first, second)


@given(PIECES)
def test_any_pieces_give_the_same(pieces: list[str]) -> None:
    echoes = EchoFilter()
    assert "".join([*map(echoes.feed, pieces), echoes.finish()]) == cut_echoes("".join(pieces))


def test_ordinary_text_is_shown_at_once() -> None:
    assert EchoFilter().feed("Hello, that is a chat about cats") == "Hello, that is a chat about cats"


@every_case("piece", ["<<<tool ", "tool 012345678", "— end of note ", "<<<tool 0123456789\n"])
def test_the_time_grows_with_the_length(piece: str) -> None:
    assert_in_proportion(cut_echoes, piece * 2_000, piece * 16_000, times=8)

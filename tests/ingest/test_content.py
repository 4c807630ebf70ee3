"""Test the content of a message: everything that can be stored is stored unchanged, everything else is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapport.domain.conversation import extract_text
from rapport.domain.errors import InvalidInput, TooLarge
from rapport.domain.text_checks import has_visible_text
from rapport.ingest.content import (
    MAX_BLOCKS,
    MAX_CHARACTERS,
    MAX_IMAGE_CHARACTERS,
    check_content,
    check_text,
)
from tests.support.cases import every_case

STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=80)
VISIBLE = STORABLE.filter(has_visible_text)
HALF = st.characters(categories=["Cs"])
IMAGES: list[dict[str, Any]] = [
    {"type": "image", "url": "https://example.org/cat.png"},
    {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"},
    {"type": "image", "source_type": "base64", "data": "aGVsbG8=", "mime_type": "image/jpeg"},
    {"type": "image_url", "image_url": {"url": "https://example.org/cat.png", "detail": "low"}},
    {"type": "image", "file_id": "file-1", "id": "x"},
]


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@given(VISIBLE)
def test_text_with_something_to_see_goes_in_as_it_is(text: str) -> None:
    assert check_content(text) == text


@every_case("text", ["👩‍👩‍👧‍👦", "שלום", "é", "\ufeff!", "‮olleh", "a\x01", "\U0010ffff", "a\r\nb", "�"])
def test_unusual_text_goes_in_as_it_is(text: str) -> None:
    assert check_content(text) == text


@given(st.text(" \t\r\n\u2003\u00a0\u3000\x1c\x01\u200b\u200d\ufeff", max_size=20))
def test_a_message_without_anything_to_see_is_refused(text: str) -> None:
    for content in (text, [text_block(text)], [text_block(text), text_block("")]):
        with pytest.raises(InvalidInput, match="The message is empty"):
            check_content(content)


@given(before=VISIBLE, after=STORABLE)
def test_nul_is_refused_wherever_it_stands(before: str, after: str) -> None:
    for content in (before + "\x00" + after, [text_block(before), text_block("\x00" + after)]):
        with pytest.raises(InvalidInput, match="holds a NUL character"):
            check_content(content)


@given(before=VISIBLE, half=HALF, after=STORABLE)
def test_half_of_a_surrogate_pair_is_refused_with_its_place(before: str, half: str, after: str) -> None:
    with pytest.raises(InvalidInput, match=f"at position {len(before)}:"):
        check_content(before + half + after)
    with pytest.raises(InvalidInput, match="isn't valid Unicode text"):
        check_content([text_block(before + half + after)])


@given(over=st.integers(-3, 3), limit=st.integers(5, 60), letter=st.sampled_from("aé世👋"))
def test_the_limit_counts_characters_and_is_itself_allowed(over: int, limit: int, letter: str) -> None:
    text = letter * (limit + over)
    for content in (text, [text_block(text)]):
        if over <= 0:
            assert check_content(content, limit=limit) == content
        else:
            with pytest.raises(TooLarge, match=rf"{limit + over} characters; the limit is {limit}\."):
                check_content(content, limit=limit)


def test_the_limit_is_for_all_blocks_together() -> None:
    assert check_content([text_block("x" * 16_000)] * 1, limit=MAX_CHARACTERS)
    with pytest.raises(TooLarge, match=r"the limit is 32,000"):
        check_content([text_block("x" * 16_001), text_block("x" * 16_000)], limit=MAX_CHARACTERS)


@given(st.lists(VISIBLE.map(text_block) | st.sampled_from(IMAGES), min_size=1, max_size=MAX_BLOCKS))
def test_blocks_go_in_as_they_are(blocks: list[dict[str, Any]]) -> None:
    checked = check_content(blocks, limit=10_000)
    assert checked == blocks
    assert extract_text(checked) == "\n".join(block["text"] for block in blocks if block["type"] == "text")


@every_case("image", IMAGES)
def test_an_image_needs_no_words(image: dict[str, Any]) -> None:
    assert check_content([image]) == [image]


def test_there_are_only_so_many_blocks() -> None:
    assert len(check_content([text_block("x")] * MAX_BLOCKS)) == MAX_BLOCKS
    with pytest.raises(TooLarge, match=f"has {MAX_BLOCKS + 1} blocks; at most {MAX_BLOCKS}"):
        check_content([text_block("x")] * (MAX_BLOCKS + 1))
    with pytest.raises(InvalidInput, match="at least one block"):
        check_content([])


def test_an_image_is_only_so_large() -> None:
    fits = {"type": "image", "base64": "x" * MAX_IMAGE_CHARACTERS, "mime_type": "image/png"}
    assert check_content([fits]) == [fits]
    for image in (
        {"type": "image", "url": "x" * (MAX_IMAGE_CHARACTERS + 1)},
        {"type": "image_url", "image_url": {"url": "x" * (MAX_IMAGE_CHARACTERS + 1)}},
    ):
        with pytest.raises(TooLarge):
            check_content([image])


BAD_BLOCKS: list[dict[str, Any]] = [
    {},
    {"type": None},
    {"type": ["text"]},
    {"type": {"text": 1}},
    {"type": "tool_use", "id": "x"},
    {"type": "thinking", "thinking": "hm"},
    {"type": "text"},
    {"type": "text", "text": None},
    {"type": "text", "text": 7},
    {"type": "text", "text": ["x"]},
    {"type": "text", "text": "x", "additional_kwargs": {"synthetic": True}},
    {"type": "text", "text": "x", "synthetic": True},
    {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
    {"type": "image", "url": "https://example.org/cat.png", "synthetic": True},
    {"type": "image", "url": 7},
    {"type": "image", "url": None},
    {"type": "image", "url": ["https://example.org"]},
    {"type": "image", "url": True},
    {"type": "image_url", "image_url": {"url": {"deeper": [1]}}},
    {"type": "image", "url": "a\x00b"},
    {"type": "image_url", "image_url": {"\x00": "x"}},
    {"type": "image_url", "image_url": {"url": "\ud800"}},
]


@every_case("block", BAD_BLOCKS)
def test_any_other_block_is_refused_in_a_sentence(block: dict[str, Any]) -> None:
    for content in ([block], [text_block("hello"), block]):
        with pytest.raises(InvalidInput) as refused:
            check_content(content)
        assert str(refused.value).endswith(".")


@every_case("kind", ["image", "image_url"])
def test_an_image_block_holds_an_image(kind: str) -> None:
    for block in ({"type": kind}, {"type": kind, "mime_type": "image/png"}, {"type": kind, "url": ""}):
        with pytest.raises(InvalidInput):
            check_content([block])


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


KIND = NESTED | st.sampled_from(["image", "image_url", "text"])


@given(
    st.lists(st.fixed_dictionaries({"type": KIND}, optional={"text": NESTED, "url": NESTED, "x": NESTED}), max_size=3)
)
def test_whatever_is_sent_is_stored_as_it_is_or_refused(content: list[dict[str, Any]]) -> None:
    """No other error occurs, and nothing is stored in part."""
    with contextlib.suppress(InvalidInput):
        assert check_content(content) == content


@every_case("depth", [2, 3, 900, 5000])
def test_an_image_is_not_nested_any_deeper(depth: int) -> None:
    inner: Any = "https://example.org/cat.png"
    for _ in range(depth):
        inner = {"url": inner}
    with pytest.raises(InvalidInput):
        check_content([{"type": "image_url", "image_url": inner}])


@given(text=STORABLE, limit=st.integers(0, 100))
def test_other_texts_are_named_in_their_refusal(text: str, limit: int) -> None:
    if len(text) <= limit:
        assert check_text(text, what="title", limit=limit) == text
    else:
        with pytest.raises(TooLarge, match="`title` has"):
            check_text(text, what="title", limit=limit)


def test_checking_does_not_change_what_was_given() -> None:
    blocks: list[dict[str, Any]] = [text_block("x"), {"type": "image_url", "image_url": {"url": "y"}}]
    checked = check_content(blocks)
    assert blocks == [text_block("x"), {"type": "image_url", "image_url": {"url": "y"}}]
    assert checked is not blocks

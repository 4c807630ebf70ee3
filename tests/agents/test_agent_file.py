"""Test agents as YAML files: what is written is read as the same agent, and nothing harmful is read at all."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rapport.agents.agent_file import (
    HEADING,
    MAX_FILE_BYTES,
    parse_yaml,
    read_agent_file,
    read_setting,
    write_agent_file,
)
from rapport.agents.document import AgentDocument, read_document
from rapport.agents.profiles import SHIPPED
from rapport.agents.tools.registry import TOOL_NAMES
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import TRIGGER_TYPES
from tests.support.cases import every_case

SCALARS = [
    "no",
    "Null",
    "~",
    "true",
    "1e3",
    "010",
    "0x1",
    "1_000",
    "12:30",
    "2020-01-01",
    "-",
    "&a",
    "*a",
    "!x",
    "# no",
]
SHAPES = [
    "a: b",
    "- a",
    "  indented",
    "\n\nlate",
    "trailing \n",
    "tab\there",
    "a\n\n\n",
    "long " * 60,
    "é\u2028b",
    "x" * 300,
]
words = st.one_of(
    st.sampled_from([*SCALARS, *SHAPES]), st.text(max_size=200), st.text("ab \n:#'\"-\x85\u2028\ufeff\t", max_size=150)
)


def is_text(text: str) -> bool:
    try:
        read_document({"name": "x", "persona": text})
    except InvalidInput:
        return False
    return True


def choose_some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


texts = words.filter(is_text)
seconds = st.floats(60, 3_600)
variants = st.one_of(
    texts,
    st.lists(
        st.fixed_dictionaries(
            {"name": st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True), "text": texts},
            optional={"weight": st.floats(1e-9, 1_000)},
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda each: each["name"],
    ),
)
autonomies = choose_some(
    enabled=st.booleans(),
    trigger_types=st.lists(st.sampled_from(TRIGGER_TYPES), min_size=1, max_size=4, unique=True),
    min_delay_seconds=st.floats(1, 30),
    max_delay_seconds=st.floats(30, 86_400),
    max_consecutive=st.integers(1, 10),
    expiry_seconds=seconds,
    prompts=st.dictionaries(st.sampled_from(TRIGGER_TYPES), variants, max_size=4),
)
documents: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"name": st.text("abc 1é:#-", min_size=1, max_size=80).filter(str.strip), "persona": texts},
    optional={
        "description": texts.filter(lambda text: len(text) <= 500),
        "greeting": texts,
        "handles": st.lists(st.sampled_from(["no", "chef", "123", "1e3", "true"]), unique=True),
        "model": st.sampled_from(["", "builtin", "openai:x: y", "ollama:1e3"]),
        "model_options": choose_some(temperature=st.floats(0, 2), max_tokens=st.integers(1, 1_000_000)),
        "grounding": st.sampled_from(["strict", "blend", "none"]),
        "min_similarity": st.none() | st.floats(0, 1),
        "memory": st.booleans(),
        "autonomy": autonomies,
        "context": choose_some(lookback_limit=st.none() | st.integers(1, 20)),
        "tools": st.none() | st.lists(st.sampled_from(sorted(TOOL_NAMES)), unique=True),
    },
)


@settings(deadline=None)
@given(documents, st.sampled_from(["chef", "1e3", "true", "null", "0", "no"]), st.booleans())
@example({"name": "no", "persona": "a\n b\n\n"}, "null", True)
@example({"name": "1", "persona": "0\x85"}, "chef", False)
@example({"name": "1", "persona": "no", "min_similarity": 0.0034888955502467853}, "chef", False)
def test_an_exported_agent_is_imported_as_the_same(fields: dict[str, Any], agent_id: str, for_everyone: bool) -> None:
    document = read_document(fields)
    written = write_agent_file(document, agent_id=agent_id, for_everyone=for_everyone)
    expected = document.model_copy(update={"id": agent_id, "for_everyone": True if for_everyone else None})
    assert read_agent_file(written) == expected, written
    assert read_agent_file(written.encode()) == expected
    assert written.startswith(HEADING)


def test_a_file_has_only_what_differs_with_long_texts_as_blocks() -> None:
    document = AgentDocument(
        name="Chef", persona="You are a chef.\n\nYou cook: well.\n", description="word " * 30 + "end"
    )
    assert write_agent_file(document, agent_id="chef") == (
        f"{HEADING}id: chef\nname: Chef\ndescription: >-\n  {('word ' * 20).strip()}\n  {'word ' * 10}end\n"
        "persona: |\n  You are a chef.\n\n  You cook: well.\n"
    )
    for agent_id, shipped in SHIPPED.items():
        assert read_agent_file(write_agent_file(shipped, agent_id=agent_id)) == shipped


@every_case(
    ("text", "sentence"),
    [
        ("a: &x 1", "Line 1: aliases and anchors (& and *) are not allowed."),
        ("name: x\npersona: *x", "Line 2: aliases and anchors (& and *) are not allowed."),
        ("name: a\nname: b", "Line 2: the field `name` is there twice."),
        (
            "name: a\npersona: b\nautonomy:\n  enabled: true\n  enabled: true",
            "Line 5: the field `enabled` is there twice.",
        ),
        ("name: a\npersona: b\nnmae: c", "There is no field `nmae`."),
        ("name: a\npersona: b\nbase_url: http://x", "`base_url` belongs inside `model_options`."),
        ("name: a\npersona: b\nmax_tokens: 5", "`max_tokens` belongs inside `model_options` or `context`."),
        ("name: a\npersona: b\nautonomy: {enbled: true}", "There is no field `autonomy.enbled`."),
        ("name: a\npersona: b\n<<: {memory: false}", "There is no field `<<`."),
        ("[" * 10_000, "Line 1: the values are nested too deeply."),
        ("x: " + "{a: " * 10_000, "Line 1: the values are nested too deeply."),
        ("name: [", "Line 1: expected the node content, but found '<stream end>'."),
        ("name: a\x01", "The file has a character that YAML does not allow: U+0001."),
        ("", "The file must hold the fields of an agent, such as `name: Chef`."),
        ("- name", "The file must hold the fields of an agent, such as `name: Chef`."),
        ("1: a", "Line 1: a field's name must be a plain word."),
        ("[a, b]: c", "Line 1: a field's name must be a plain word."),
        ("name: 12\npersona: b", "`name` must be a text."),
        ("name: a\npersona: b\nmemory: no", "`memory` must be true or false."),
        ("name: a\n---\nname: b", "Line 2: expected a single document in the stream, but found another document."),
        (f"name: a\npersona: {'x' * 20_000}", "`persona` must have at most 16,000 characters."),
        (
            "name: a\npersona: b\nautonomy: {min_delay_seconds: 0.1}",
            "`autonomy.min_delay_seconds` must be at least 1.",
        ),
        (
            "name: a\npersona: b\nautonomy: {prompts: {check_in: ' '}}",
            "`autonomy.prompts.check_in.0.text` must not be empty.",
        ),
        (
            "name: a\npersona: b\nmodel: acme:x",
            "`model` must be empty (the server's model), `builtin`, or one of `openai:…`, `anthropic:…`, `ollama:…` with a model's name.",
        ),
        (
            f"name: a\npersona: b\nautonomy: {{prompts: {{check_in: {[{'name': f'v{n}', 'text': 'x'} for n in range(9)]}}}}}",
            "`autonomy.prompts.check_in` must have at most 8 entries.",
        ),
        (
            "name: a\npersona: b\nautonomy: {prompts: {check_in: 5}}",
            "`autonomy.prompts.check_in` must be a text, or a list of variants with `name`, `text` and `weight`.",
        ),
        ("name: a\npersona: b\nautonomy: yes", "`autonomy` must be an object with fields."),
        (f"name: {'x' * 500}\npersona: b", "`name` must have at most 80 characters."),
        (
            f"name: a\npersona: b\nhandles: [{', '.join(f'h{n}' for n in range(11))}]",
            "`handles` must have at most 10 entries.",
        ),
        ("name: a\npersona: b\nmodel_options: {temperature: 2.5}", "`model_options.temperature` must be at most 2."),
        (
            "name: a\npersona: b\nmodel_options: {max_tokens: 99999999999999999999}",
            "`model_options.max_tokens` is too large.",
        ),
        ("name: a\npersona: b\ngrounding: loose", "`grounding` must be `blend`, `strict` or `none`."),
        (
            'name: a\npersona: "b\\0"',
            "`persona` holds a NUL character, which can't be stored. Remove it and send again.",
        ),
        ("name: a", "`persona` must not be empty: say in a few sentences who the agent is and how it answers."),
    ],
)
def test_a_mistake_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_agent_file(text)
    assert str(refused.value) == sentence


@every_case(
    "value",
    [
        "!!python/object/apply:os.system [x]",
        "!!set {a}",
        "!!binary aGk=",
        "!!timestamp 2020-01-01",
        "!own x",
        "!!omap [a: b]",
    ],
)
def test_no_tag_makes_an_object(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"^Line 1: tags "):
        read_agent_file(f"name: {value}")


def test_a_file_that_is_too_large_is_not_parsed() -> None:
    text = "name: a\npersona: b\n"
    assert read_agent_file(text + "#" * (MAX_FILE_BYTES - len(text))).name == "a"
    with pytest.raises(InvalidInput, match="too large: an agent has at most 256 kB"):
        read_agent_file(text + "#" * (MAX_FILE_BYTES - len(text) + 1))
    with pytest.raises(InvalidInput, match="not text in UTF-8"):
        read_agent_file(b"name: \xff")


def test_a_bomb_costs_no_more_than_reading_it() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    began_at = time.process_time()
    with pytest.raises(InvalidInput, match="aliases and anchors"):
        read_agent_file(bomb)
    for text in (
        "[" * MAX_FILE_BYTES,
        "{" * MAX_FILE_BYTES,
        "- " * (MAX_FILE_BYTES // 2),
        "? " * (MAX_FILE_BYTES // 2),
    ):
        with pytest.raises(InvalidInput):
            read_agent_file(text)
    assert time.process_time() - began_at < 20


@given(st.binary(max_size=300) | st.text(":-[]{}&*!|>'\"#\n ?,%@`~ab1", max_size=120))
@settings(deadline=None)
def test_no_bytes_cause_another_error(content: bytes | str) -> None:
    sentence = "."
    try:
        parse_yaml(content)
    except InvalidInput as refused:
        sentence = str(refused)
    assert sentence.endswith(".")
    assert "\n" not in sentence


@every_case(
    ("setting", "change"),
    [
        ("autonomy.enabled=true", {"autonomy": {"enabled": True}}),
        ("name=Chef: the cook", {"name": "Chef: the cook"}),
        ("name='12'", {"name": "12"}),
        ("handles=[chef, cook]", {"handles": ["chef", "cook"]}),
        ("min_similarity=0.5", {"min_similarity": 0.5}),
        ("model=", {"model": None}),
        ("persona=It's = fine", {"persona": "It's = fine"}),
        ("persona=no", {"persona": "no"}),
    ],
)
def test_one_field_is_set_by_its_dotted_name(setting: str, change: dict[str, Any]) -> None:
    assert read_setting(setting) == change


@every_case("setting", ["autonomy", "=1", "a..b=1", ".a=1"])
def test_a_change_without_a_field_is_refused(setting: str) -> None:
    with pytest.raises(InvalidInput, match="is not a change: write field=value"):
        read_setting(setting)

"""A note format is one parser module and one entry in the registry, as docs/extending/a-note-format.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rapport.domain.errors import InvalidInput, Permanent, TooLarge
from rapport.retrieval.files.document import Limits, NoteFormat
from rapport.retrieval.files.reader import FileReader
from rapport.retrieval.files.registry import FORMATS, index_by_suffix
from tests.retrieval import csv_format

ROOT = Path(__file__).parents[2]
CSV = NoteFormat("csv", "a CSV table", ("csv",), parser="tests.retrieval.csv_format")


async def test_a_new_format_is_read_in_the_child_process() -> None:
    reader = FileReader(formats=(*FORMATS, CSV))
    document = await reader.read("Prices.CSV", "name,price\nCoffee,3 €\nTea,2 €\n".encode())
    assert (document.title, document.format_name) == ("Prices", "csv")
    assert document.text == "- name: Coffee, price: 3 €\n- name: Tea, price: 2 €"
    assert (await reader.read("x.md", b"# Hello")).title == "Hello"


async def test_a_new_format_has_the_limits_and_errors_of_the_others() -> None:
    reader = FileReader(Limits(max_characters=100), formats=(*FORMATS, CSV))
    with pytest.raises(TooLarge, match="more than 100 characters"):
        await reader.read("x.csv", b"name\n" + b"Coffee\n" * 1_000)
    with pytest.raises(InvalidInput, match="is named like a CSV table, but it is a PDF"):
        await reader.read("x.csv", b"%PDF-1.7")
    with pytest.raises(InvalidInput, match="has no visible text"):
        await reader.read("x.csv", b"name\n")
    with pytest.raises(InvalidInput, match=r"\.txt, \.md, \.html, \.pdf, \.docx and \.csv can"):
        await reader.read("x.rst", b"hello")


async def test_a_parser_that_is_not_installed_is_an_error_of_the_server() -> None:
    reader = FileReader(formats=[NoteFormat("csv", "a CSV table", ("csv",), parser="rapport.retrieval.files.nowhere")])
    with pytest.raises(Permanent, match=r"rapport\.retrieval\.files\.nowhere"):
        await reader.read("x.csv", b"hello")


def test_two_formats_do_not_claim_one_suffix() -> None:
    with pytest.raises(ValueError, match=r"claim \.csv: csv and table"):
        index_by_suffix([CSV, NoteFormat("table", "a table", ("csv",))])


def test_every_format_is_offered_by_the_page() -> None:
    script = (ROOT / "src/rapport/page/notes.js").read_text()
    offered = re.findall(r"\.(\w+)", re.findall(r'const KINDS = "(.*?)"', script)[0])
    assert {index_by_suffix()[suffix].name for suffix in offered} == {known.name for known in FORMATS}


def test_the_guide_shows_the_parser_that_runs_here() -> None:
    guide = (ROOT / "docs/extending/a-note-format.md").read_text()
    assert f"```python\n{Path(csv_format.__file__).read_text()}```" in guide

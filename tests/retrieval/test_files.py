"""Test reading files: text with its structure, and every hostile or broken file is refused with a message.

Everything here goes through the real child process; the files are made on the spot, hostile ones included.
"""

from __future__ import annotations

import asyncio
import io
import re
import string
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Generator
from pathlib import Path

import docx
import psutil
import pytest
from docx.document import Document as WordDocument
from hypothesis import example, given
from hypothesis import strategies as st
from pypdf import PdfReader, PdfWriter

from rapport.domain.errors import InvalidInput, TooLarge
from rapport.domain.note import NOTE_ID
from rapport.retrieval.files.document import Document, FileName, Limits
from rapport.retrieval.files.reader import FileReader
from rapport.retrieval.note_ids import make_note_id
from tests.support.cases import every_case

CHILD = "rapport.retrieval.files.child"
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


async def read(name: str, data: bytes, limits: Limits | None = None) -> Document:
    return await FileReader(limits).read(name, data)


async def refusal(name: str, data: bytes, limits: Limits | None = None) -> str:
    """Return the sentence for the sender."""
    with pytest.raises(InvalidInput) as raised:
        await read(name, data, limits)
    sentence = str(raised.value)
    assert sentence.startswith("“")
    assert sentence.endswith(".")
    assert sentence.isprintable()
    assert len(sentence) < 400
    return sentence


def children() -> set[int]:
    """Return the child processes of this one, zombies included."""
    return {process.pid for process in psutil.Process().children()}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    before = children()
    yield
    assert children() <= before


# Files, made here


def pdf(*pages: bytes, title: str | None = None, content: tuple[bytes, bytes] | None = None) -> bytes:
    """Return a PDF of pages given as drawing commands; `content` = (dictionary, stream) is one page with a stream as given."""
    streams = [content] if content else [(b"", page) for page in pages]
    tree = 2 + 2 * len(streams)
    kids = b" ".join(b"%d 0 R" % (3 + 2 * number) for number in range(len(streams)))
    objects = [b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"]
    for number, (dictionary, stream) in enumerate(streams):
        objects += [
            b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(stream), dictionary, stream),
            b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 1 0 R >> >> >>" % (tree, 2 + 2 * number),
        ]
    objects += [
        b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(streams), kids),
        b"<< /Type /Catalog /Pages %d 0 R >>" % tree,
        b"<< /Title (%s) >>" % (title or "").encode("cp1252"),
    ]
    written = bytearray(b"%PDF-1.4\n")
    places: list[int] = []
    for number, one in enumerate(objects, start=1):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    written += b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root %d 0 R /Info %d 0 R >>\n" % (
        *(len(objects) + 1, table, len(objects) + 1, tree + 1),
        tree + 2,
    )
    return bytes(written) + b"startxref\n%d\n%%%%EOF\n" % written.rindex(b"xref\n0 ")


def page(*lines: str) -> bytes:
    """Drawing commands for lines of text; an empty one is the space between two paragraphs."""
    height, commands = 780.0, [b"BT /F1 11 Tf"]
    for line in lines:
        if line:
            commands.append(b"1 0 0 1 72 %.1f Tm (%s) Tj" % (height, line.encode("cp1252")))
        height -= 14 if line else 10
    return b"\n".join([*commands, b"ET"])


def swollen_pdf(content: bytes) -> bytes:
    """Return a small file whose page is large."""
    return pdf(content=(b"/Filter /FlateDecode", zlib.compress(content, 9)))


def locked_pdf(*, user: str, owner: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(page("The safe is behind the painting.")))))
    writer.encrypt(user, owner, algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def word(document: WordDocument) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def packed(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def word_of(body: str, *, prologue: str = "") -> bytes:
    """Return a Word document with nothing but a body, given as XML."""
    mc = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    xml = f'{prologue}<w:document xmlns:w="{W}" xmlns:mc="{mc}"><w:body>{body}</w:body></w:document>'
    return packed({"word/document.xml": xml.encode()})


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


SLOW_PDF = pdf(page("x")[:-2] + b"(a) Tj\n" * 500_000 + b"ET")
"""Half a million strings, drawn one by one."""


# Good files


async def test_text_is_read_as_it_is() -> None:
    document = await read("Minutes of May.txt", "\ufeffAnna: yes\r\nBob: no\rEnd\fNext page\n".encode())
    assert document == Document("Minutes of May", "Anna: yes\nBob: no\nEnd\nNext page\n", "txt")


@every_case("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
async def test_text_in_the_usual_encodings_is_the_same_text(encoding: str) -> None:
    text = "Die Prüfung beginnt um neun Uhr – „pünktlich“, sagt das Büro."
    assert (await read("a.txt", text.encode(encoding))).text == text


async def test_text_with_a_broken_end_is_still_the_text_it_was() -> None:
    cut = "Müller, Jäger, Schröder und Söhne: Überweisung für Äpfel".encode() + "ö".encode()[:1]
    assert (await read("a.txt", cut)).text == "Müller, Jäger, Schröder und Söhne: Überweisung für Äpfel\ufffd"
    half = await read("a.txt", b"half of a pair: \xed\xa0\x80")
    assert half.text.encode()


async def test_markdown_stays_markdown_and_its_first_heading_is_the_title() -> None:
    text = "Intro\n\n```\n# not this one\n```\n\n## The *real* [title](https://example.org) ##\n\n- a\n- b\n"
    document = await read("x.markdown", text.encode())
    assert (document.format_name, document.text) == ("md", text)
    assert document.title == "The *real* title"
    assert (await read("x.md", b"Underlined\n=====\ntext")).title == "Underlined"
    assert (await read("No heading.md", b"just text")).title == "No heading"


PAGE = """<!doctype html><html><head><title>Leave &amp; holidays</title><style>p {color: red}</style>
<script>document.write("<p>never</p>")</script></head><body><!-- a secret -->
<nav><ul><li><a href="https://example.org/x">Home</a></li></ul></nav>
<h1>Annual   leave</h1><p>Every employee has <b>30</b> days,<br>counted per year.<p>Unused days expire in March&hellip;
<ul><li>Full time<ul><li><p>Office</p></li><li>Field</li></ul></li><li>Part time</li></ul>
<h2>Table</h2><table><tr><th>Role</th><th>Days</th></tr><tr><td>Lead</td><td><p>32</p></td></tr></table>
<pre>  kept   as
    it is</pre><template><p>hidden</p></template><noscript>turn it on</noscript>
<table><tr><td><h3>Only layout</h3><p>One.</p><p>Two.</p></td></tr></table></body></html>"""


async def test_a_web_page_keeps_its_structure_and_loses_its_machinery() -> None:
    document = await read("leave.html", PAGE.encode())
    assert document.title == "Leave & holidays"
    assert document.text == (
        "- Home\n\n"
        "# Annual leave\n\n"
        "Every employee has 30 days,\ncounted per year.\n\n"
        "Unused days expire in March…\n\n"
        "- Full time\n  - Office\n  - Field\n- Part time\n\n"
        "## Table\n\n"
        "Role | Days\nLead | 32\n\n"
        "```\n  kept   as\n    it is\n```\n\n"
        "### Only layout\n\nOne.\n\nTwo."
    )


async def test_a_page_without_a_title_is_called_by_its_heading() -> None:
    assert (await read("x.htm", b"<h1>Opening <i>hours</i></h1><p>9 to 5")).title == "Opening hours"
    assert (await read("Just a page.htm", b"<p>9 to 5")).title == "Just a page"


async def test_a_page_may_declare_an_older_encoding() -> None:
    text = '<meta charset="windows-1251"><p>Привет, мир</p>'
    assert (await read("x.html", text.encode("cp1251"))).text == "Привет, мир"


async def test_a_pdf_gives_paragraphs_and_whole_words() -> None:
    first = page(
        "Travel policy",
        "",
        "Every employee may book a train in second class without asking any-",
        "body. A well-known hotel is fine too, if it is one of the long well-",
        "known partners.",
        "",
        "Hotels cost up to 120 euros a night, and this paragraph goes on over to",
    )
    second = page("the next page.", "", "Costs are paid back.")
    document = await read("policy.pdf", pdf(first, second, title="Travel policy 2024"))
    assert document.title == "Travel policy 2024"
    assert document.text.split("\n\n") == [
        "Travel policy",
        (
            "Every employee may book a train in second class without asking anybody. A well-known hotel is fine too, "
            "if it is one of the long well-known partners."
        ),
        "Hotels cost up to 120 euros a night, and this paragraph goes on over to the next page.",
        "Costs are paid back.",
    ]


@every_case("title", ["", "Microsoft Word - Entwurf3.doc", "untitled", "report_final.indd", "   "])
async def test_a_pdf_with_a_meaningless_title_is_called_by_its_name(title: str) -> None:
    assert (await read("House rules.pdf", pdf(page("No smoking."), title=title))).title == "House rules"


async def test_a_pdf_that_needs_no_password_to_be_opened_is_read() -> None:
    document = await read("a.pdf", locked_pdf(user="", owner="only for changes"))
    assert document.text == "The safe is behind the painting."


async def test_a_word_document_keeps_headings_lists_and_tables_in_order() -> None:
    made = docx.Document()
    made.add_heading("Onboarding", 0)
    made.add_paragraph("Welcome to the team.")
    made.add_heading("First day", 1)
    made.add_paragraph("Get a badge", style="List Bullet")
    made.add_paragraph("Get a laptop", style="List Number")
    table = made.add_table(rows=2, cols=2)
    for cell, text in zip(
        (cell for row in table.rows for cell in row.cells), ("Who", "Where", "Anna", "B 12"), strict=True
    ):
        cell.text = text
    made.add_heading("Later", 2)
    made.add_paragraph("Ask anybody.")
    document = await read("x.docx", word(made))
    assert document.title == "Onboarding"
    assert document.text == (
        "# Onboarding\n\nWelcome to the team.\n\n# First day\n\n- Get a badge\n- Get a laptop\n\n"
        "Who | Where\nAnna | B 12\n\n## Later\n\nAsk anybody."
    )
    made.core_properties.title = "Handbook"
    assert (await read("x.docx", word(made))).title == "Handbook"


async def test_a_word_document_says_what_it_says_now() -> None:
    """Tracked deletions are gone, insertions and the text of boxes and controls are there, once."""
    body = (
        "<w:sdt><w:sdtContent>" + paragraph("In a control.") + "</w:sdtContent></w:sdt>"
        "<w:p><w:r><w:t>Kept</w:t></w:r><w:del><w:r><w:delText>gone</w:delText><w:t>gone</w:t></w:r></w:del>"
        '<w:ins><w:r><w:t xml:space="preserve"> and new</w:t><w:tab/><w:t>text</w:t></w:r></w:ins></w:p>'
        "<w:p><w:r><mc:AlternateContent><mc:Choice><w:txbxContent>"
        + paragraph("Boxed.")
        + "</w:txbxContent></mc:Choice>"
        "<mc:Fallback><w:txbxContent>" + paragraph("Boxed.") + "</w:txbxContent></mc:Fallback>"
        "</mc:AlternateContent></w:r></w:p>"
    )
    assert (await read("x.docx", word_of(body))).text == "In a control.\n\nKept and new text\n\nBoxed."


# Hostile files


async def test_a_file_over_the_limit_is_refused_before_it_is_looked_at() -> None:
    began = time.process_time()
    with pytest.raises(TooLarge, match="50,000,009 bytes; at most 20,000,000"):
        await read("big.pdf", b"%PDF-1.4\n" + bytes(50_000_000))
    assert time.process_time() - began < 5  # reading it takes a minute


async def test_fifteen_megabytes_of_junk_objects_are_refused_in_time() -> None:
    junk = b"".join(b"%d 0 obj\n<< /A [1 2 3] /B (x) >>\nendobj\n" % number for number in range(360_000))
    await refusal("junk.pdf", b"%PDF-1.4\n" + junk, Limits(seconds=5))


@every_case(
    "data",
    [
        pdf(page("cut off"))[:300],
        b"%PDF-1.7\n" + bytes(range(256)) * 40,
        pdf(content=(b"", b"[" * 500_000)),
        pdf(page("Looping.")).replace(b"/Kids [3 0 R]", b"/Kids [4 0 R]"),
    ],
)
async def test_a_broken_pdf_is_refused(data: bytes) -> None:
    assert "“x.pdf”" in await refusal("x.pdf", data, Limits(seconds=5))


async def test_a_pdf_without_text_is_said_to_be_a_scan() -> None:
    assert "OCR" in await refusal("scan.pdf", pdf(b"0 0 100 100 re f"))


async def test_a_pdf_with_a_password_is_refused() -> None:
    sentence = await refusal("secret.pdf", locked_pdf(user="sesame", owner="admin"))
    assert sentence == "“secret.pdf” is protected by a password. Save it without one and upload it again."


async def test_a_pdf_in_a_cipher_that_is_not_at_hand_is_refused() -> None:
    aes = b"/V 4 /CF << /StdCF << /CFM /AESV2 /AuthEvent /DocOpen /Length 16 >> >> /StmF /StdCF /StrF /StdCF"
    data = locked_pdf(user="", owner="admin").replace(b"/V 2", aes).replace(b"/R 3", b"/R 4")
    assert "upload" in await refusal("secret.pdf", data)


async def test_a_pdf_page_that_unpacks_without_end_is_not_unpacked() -> None:
    with pytest.raises(TooLarge, match="unpacks to far more"):
        await read("bomb.pdf", swollen_pdf(b" " * 100_000_000))


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not limit the address space")
async def test_a_file_that_needs_too_much_memory_ends_its_reader_only() -> None:
    with pytest.raises(TooLarge, match="more than 150 MB of memory"):
        await read("fat.pdf", swollen_pdf(b" " * 70_000_000), Limits(memory_mb=150))


@pytest.mark.parametrize(
    ("name", "data"),
    [("slow.pdf", SLOW_PDF), ("slow.html", b"<table><tr><td>x" * 400_000)],
)
async def test_a_file_that_takes_too_long_is_given_up(name: str, data: bytes) -> None:
    with pytest.raises(TooLarge, match="longer than 1 seconds"):
        await read(name, data, Limits(seconds=1))


async def test_a_child_that_has_hardly_begun_is_ended_too() -> None:
    for seconds in (0.0001, 0.001, 0.01, 0.03):
        with pytest.raises(TooLarge, match="took longer"):
            await read("slow.pdf", SLOW_PDF, Limits(seconds=seconds))


ZEROS = bytes(150_000_000)


async def test_a_zip_bomb_is_not_unpacked() -> None:
    bomb = packed({"word/document.xml": ZEROS})
    assert len(bomb) < 200_000
    with pytest.raises(TooLarge, match="unpacks to far more"):
        await read("bomb.docx", bomb)
    with pytest.raises(TooLarge, match="unpacks to far more"):
        await read("dense.docx", packed({"word/document.xml": ZEROS[:20_000_000]}))


async def test_a_zip_bomb_that_lies_about_its_size_gets_no_further() -> None:
    lying = packed({"word/document.xml": ZEROS}).replace(struct.pack("<I", len(ZEROS)), struct.pack("<I", 1000))
    assert "damaged" in await refusal("bomb.docx", lying, Limits(memory_mb=150))


async def test_entities_that_multiply_are_not_expanded() -> None:
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    prologue = f'<!DOCTYPE w [<!ENTITY l0 "laughs">{levels}]>'
    assert "damaged" in await refusal("laughs.docx", word_of(paragraph("&l11;"), prologue=prologue))
    outside = '<!DOCTYPE w [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    assert "damaged" in await refusal("outside.docx", word_of(paragraph("&x;"), prologue=outside))


@every_case(
    ("data", "said"),
    [
        (packed({"xl/workbook.xml": b"<workbook/>"}), "not a Word document"),
        (packed({"word/document.xml": b"<html/>"}), "not a Word document"),
        (word_of(paragraph("cut"))[:-40], "damaged"),
        (packed({"word/document.xml": b"<w:document xmlns:w='x'"}), "damaged"),
        (packed({"word/document.xml": b"<a/>"}, zipfile.ZIP_LZMA), "damaged"),
        (word_of(paragraph(" ")), "no visible text"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), "protected by a password"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "an old Office file"),
    ],
)
async def test_what_is_no_word_document_is_refused(data: bytes, said: str) -> None:
    assert said in await refusal("x.docx", data)


@every_case(
    ("name", "data", "what"),
    [
        ("x.docx", pdf(page("hello")), "it is a PDF"),
        ("x.pdf", word_of(paragraph("hello")), "it is a ZIP archive"),
        ("x.pdf", PAGE.encode(), "it is a web page"),
        ("x.pdf", b"just text", "it is something else"),
        ("x.docx", b"<html><p>hello", "it is a web page"),
        ("x.txt", word_of(paragraph("hello")), "it is a ZIP archive"),
        ("x.txt", b"\x7fELF\x02\x01\x01" + bytes(100), "it is a program"),
        ("x.txt", pdf(page("hello")), "it is a PDF"),
        ("x.md", b"\x89PNG\r\n\x1a\n" + bytes(100), "it is a picture"),
        ("x.html", pdf(page("hello")), "it is a PDF"),
        ("x.html", b"{\\rtf1 hello}", "it is an RTF file"),
    ],
)
async def test_a_false_extension_is_told(name: str, data: bytes, what: str) -> None:
    assert what in await refusal(name, data)


@every_case(
    ("name", "data", "said"),
    [
        ("x.txt", b"", "is empty"),
        ("x.pdf", b"", "is empty"),
        ("x.txt", b" \r\n\t\n", "no visible text"),
        ("x.txt", "\u200b\ufeff\n".encode(), "no visible text"),
        ("x.html", b"<script>build()</script>", "no visible text"),
        ("x.txt", b"a\x00b", "NUL bytes"),
        ("x.md", b"\xff\x00b", "NUL bytes"),
        ("x.html", b"<p>a\x00b</p>", "NUL bytes"),
        ("x.txt", bytes(range(1, 32)) * 9, "isn't readable as text"),
        ("x.txt", "Привет, мир".encode("cp1251"), "Save it as UTF-8"),
        ("x.txt", "\ufeffodd".encode("utf-16-le") + b"x", "Save it as UTF-8"),
        ("x.txt", "\ufeff".encode("utf-16-le") + b"\x00\xd8a\x00", "Save it as UTF-8"),
    ],
)
async def test_what_is_no_text_is_refused(name: str, data: bytes, said: str) -> None:
    assert said in await refusal(name, data)


@every_case("name", ["x.txt", "x.md", "x.html", "x.docx"])
async def test_a_line_of_a_million_characters_counts_like_any_text(name: str) -> None:
    line = "x" * 1_000_000
    data = word_of(paragraph(line)) if name == "x.docx" else line.encode()
    with pytest.raises(TooLarge, match="more than 500,000 characters"):
        await read(name, data)
    assert (await read(name, data, Limits(max_characters=2_000_000))).text == line


async def test_nothing_unstorable_comes_out_of_a_file() -> None:
    odd = pdf(page("before \\000\\001after \\177"))
    assert (await read("x.pdf", odd)).text.replace(" ", "") == "beforeafter"
    assert (await read("x.html", b"<p>a&#xD800;&#0;b</p>")).text == "a\ufffd\ufffdb"
    assert (await read("x.txt", b"colour \x1b[31mred")).text == "colour [31mred"


@every_case("name", ["x.exe", "x", "", "pdf", "../../etc/passwd", "x.pdf/", "x.pdf.zip", "x.doc", "x.pdf\x00.sh"])
async def test_an_unknown_extension_is_refused_with_the_ones_that_work(name: str) -> None:
    assert ".txt, .md, .html, .pdf and .docx" in await refusal(name, b"hello")


@every_case(
    ("name", "title"),
    [
        ("../../etc/passwd.txt", "passwd"),
        ("C:\\Users\\anna\\Plan.TXT", "Plan"),
        ("a\u202etxt.exe\u202c\r\n\tb.txt", "atxt.exe b"),
        ("\ud800half.txt", "half"),
        (".txt", "Untitled"),
        ("x" * 5000 + ".txt", "x" * 199 + "…"),
    ],
)
async def test_a_hostile_name_leads_nowhere(name: str, title: str) -> None:
    assert (await read(name, b"hello")).title == title
    sentence = await refusal(name, b"a\x00b")
    assert "/" not in sentence
    assert "\\" not in sentence


@given(st.text(max_size=300), st.sampled_from(["", ".txt", ".pdf", ".PDF", ".exe"]))
def test_whatever_a_file_is_called_what_is_shown_is_one_short_line(name: str, extension: str) -> None:
    file = FileName.of(name + extension)
    assert 0 < len(file.shown) <= 60
    assert "\n" not in file.shown
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff/\\\\]", file.shown + file.stem)
    assert len(file.stem) <= 200


@pytest.mark.parametrize("kind", ["title", "heading"])
async def test_a_hostile_title_is_one_clean_line(kind: str) -> None:
    title = "The\u202e \n plan \x07" + "y" * 400
    html = f"<title>{title}</title><p>x" if kind == "title" else f"<h1>{title}</h1>"
    document = await read("x.html", html.encode())
    assert document.title.startswith("The plan yyy")
    assert len(document.title) == 200


# The child


async def child_of(reading: asyncio.Task[Document], before: set[int]) -> psutil.Process:
    """Return the child, as soon as it runs our code."""
    while not reading.done():
        for pid in children() - before:
            process = psutil.Process(pid)
            if CHILD in process.cmdline():
                return process
        await asyncio.sleep(0)
    raise AssertionError("the file was read before its reader was seen")


async def test_a_cancelled_caller_leaves_no_process_behind() -> None:
    before = children()
    reading = asyncio.create_task(read("slow.pdf", SLOW_PDF))
    child = await child_of(reading, before)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not psutil.pid_exists(child.pid)


async def test_a_child_that_dies_is_a_damaged_file_and_the_next_one_is_read() -> None:
    before, reader = children(), FileReader()
    reading = asyncio.create_task(reader.read("slow.pdf", SLOW_PDF))
    child = await child_of(reading, before)
    child.terminate()
    with pytest.raises(InvalidInput, match="damaged"):
        await reading
    assert (await reader.read("x.html", b"<p>hello")).text == "hello"


async def test_a_child_sees_nothing_of_the_server() -> None:
    before = children()
    reading = asyncio.create_task(read("slow.pdf", SLOW_PDF))
    child = await child_of(reading, before)
    assert child.environ() == {}
    assert child.cwd() == "/"
    reading.cancel()
    await asyncio.wait([reading])


async def test_no_more_than_two_children_run_at_once() -> None:
    before, reader = children(), FileReader(max_children=2)
    most = 0
    readings = [asyncio.create_task(reader.read("x.html", b"<p>hello")) for _ in range(5)]
    while not all(reading.done() for reading in readings):
        most = max(most, len(children() - before))
        await asyncio.sleep(0)
    assert [reading.result().text for reading in readings] == ["hello"] * 5
    assert most == 2


def test_a_limited_process_writes_nothing_and_grows_no_further(tmp_path: Path) -> None:
    code = f"""
from rapport.retrieval.files.child import limit_resources
import sys
limit_resources(200, 5)
try:
    with open({str(tmp_path / "x")!r}, "w") as file:
        file.write("x")
except OSError as error:
    sys.stdout.write(f"{{error.strerror}};")
try:
    len(bytes(300_000_000))
except MemoryError:
    sys.stdout.write("no memory;")
try:
    [open("/dev/null") for _ in range(40)]
except OSError as error:
    sys.stdout.write(error.strerror)
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    memory = "" if sys.platform == "darwin" else "no memory;"
    assert done.stdout == f"File too large;{memory}Too many open files"
    assert (tmp_path / "x").read_text() == ""


# Names


@every_case(
    ("name", "expected"),
    [
        ("Travel policy 2024.pdf", "travel-policy-2024"),
        ("Überblick.md", "uberblick"),
        ("../secret/Straße & Øl.txt", "strasse-ol"),
        ("Version 2.0 plan", "version-2-0-plan"),
        ("Input/output guide", "input-output-guide"),
        ("Bob's notes.docx", "bobs-notes"),
        ("snake_case.md", "snake_case"),
        ("a" * 59 + " bc.txt", "a" * 59),
    ],
)
def test_a_readable_id_can_be_read(name: str, expected: str) -> None:
    assert make_note_id(name) == expected


@given(st.text(max_size=120))
@example("会议.txt")
@example("...")
@example("-" * 70)
@example("\ud800")
@example("")
def test_a_readable_id_is_always_an_id(name: str) -> None:
    identity = make_note_id(name)
    assert NOTE_ID.fullmatch(identity)
    assert len(identity) <= 60
    assert identity.strip("-") == identity
    assert make_note_id(name) == identity


def test_names_with_nothing_readable_in_them_get_different_ids() -> None:
    names = ["会议.txt", "计划.txt", "...", "___", ""]
    ids = {make_note_id(name) for name in names}
    assert len(ids) == len(names)
    assert all(re.fullmatch(f"note-[{string.hexdigits}]{{8}}", identity) for identity in ids)

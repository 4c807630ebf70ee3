"""Test notes over HTTP: added, found, replaced and deleted completely or not at all, only by their owner (RAG-1, RAG-2, SEC)."""

from __future__ import annotations

import asyncio
import io
import random
import re
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import docx
import httpx
import pytest
from pypdf import PdfReader, PdfWriter

from rapport.domain.embedder import Embedder
from rapport.domain.errors import Conflict, InvalidInput, NotFound, Transient
from rapport.domain.note import NOTE_ID, Vector
from rapport.retrieval.library import AddedNote, Library
from rapport.retrieval.note_ids import make_note_id
from rapport.storage.database import Database
from rapport.storage.notes.notes import Notes
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.cases import every_case
from tests.support.world import World, open_world

PROBLEM = "application/problem+json"

REFUNDS = "Customers may send goods back within 30 days of purchase and get their money back."
PARKING = "Visitors park behind the building. The gate code changes every Monday; reception has it."
COFFEE = "The coffee machine on the second floor is descaled every Friday by the office team."


async def assert_note_counts_agree(world: World | Database) -> None:
    """Assert that note_counts and notes agree with the passages."""
    database = world if isinstance(world, Database) else world.database
    async with database.statement() as connection:
        note_counts = await connection.execute(
            "SELECT owner_id, embedder, coalesce(s.chunks, 0), coalesce(c.chunks, 0) FROM note_counts s FULL JOIN"
            " (SELECT owner_id, embedder, count(*) AS chunks FROM chunks GROUP BY owner_id, embedder) c"
            " USING (owner_id, embedder) WHERE coalesce(s.chunks, 0) <> coalesce(c.chunks, 0)"
        )
        assert await note_counts.fetchall() == []
        notes = await connection.execute(
            "SELECT n.owner_id, n.id, n.chunks, count(c.position), max(c.position) FROM notes n LEFT JOIN chunks c"
            " ON c.owner_id = n.owner_id AND c.note_id = n.id AND c.embedder = n.embedder GROUP BY n.owner_id, n.id"
            " HAVING n.chunks = 0 OR n.chunks <> count(c.position) OR n.chunks <> max(c.position) + 1"
        )
        assert await notes.fetchall() == []
        orphaned = await connection.execute(
            "SELECT c.owner_id, c.note_id FROM chunks c JOIN notes n ON n.owner_id = c.owner_id AND n.id = c.note_id"
            " WHERE n.embedder <> c.embedder"
        )
        assert await orphaned.fetchall() == []


async def counts(world: World) -> tuple[int, int]:
    """Count the notes and passages of all owners."""
    [(notes, chunks)] = await world.sql("SELECT (SELECT count(*) FROM notes), (SELECT count(*) FROM chunks)")
    return notes, chunks


async def add(world: World, text: str, **more: Any) -> httpx.Response:
    headers = more.pop("headers", None)
    return await world.http.post("/api/notes", json={"text": text, **more}, headers=headers)


async def added(world: World, text: str, **more: Any) -> dict[str, Any]:
    response = await add(world, text, **more)
    assert response.status_code == 201, response.text
    return response.json()


async def put(world: World, note_id: str, text: str, **more: Any) -> httpx.Response:
    headers = more.pop("headers", None)
    return await world.http.put(f"/api/notes/{note_id}", json={"text": text, **more}, headers=headers)


async def upload(world: World, name: str, data: bytes, **fields: str) -> httpx.Response:
    return await world.http.post("/api/notes", files={"file": (name, data)}, data=fields)


async def found(world: World, question: str, **query: Any) -> dict[str, Any]:
    headers = query.pop("headers", None)
    response = await world.http.get("/api/notes/search", params={"q": question, **query}, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


async def listed(world: World, **query: Any) -> list[str]:
    response = await world.http.get("/api/notes", params={"limit": 500, **query})
    assert response.status_code == 200, response.text
    return [note["id"] for note in response.json()["notes"]]


async def text_of(world: World, note_id: str) -> str:
    response = await world.http.get(f"/api/notes/{note_id}")
    assert response.status_code == 200, response.text
    return response.json()["text"]


def detail(response: httpx.Response, status: int) -> str:
    """Return the message of a refusal; check that it is one short line without internals."""
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"] == PROBLEM
    sentence: str = response.json()["detail"]
    assert sentence.isprintable(), sentence
    assert 5 < len(sentence) < 500, sentence
    assert not re.search(r"Traceback|psycopg|NoteBody|Error\b", sentence), sentence
    return sentence


@dataclass
class Watched:
    """An embedder that records its texts, and waits at its gate or fails on request."""

    inner: Embedder
    given: list[str] = field(default_factory=list[str])
    fails_at: int | None = None
    """The number of texts after which it fails."""
    gate: asyncio.Event | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def min_similarity(self) -> float:
        return self.inner.min_similarity

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.given += texts
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.fails_at is not None and len(self.given) > self.fails_at:
            raise Transient("The embedder is not there.", retry_after=7)
        return await self.inner.embed(texts)

    async def embed_question(self, question: str) -> Vector:
        return await self.inner.embed_question(question)


def watch(world: World) -> Watched:
    """Replace the library's embedder by a recording one."""
    watched = Watched(world.app.library.embedder)
    world.app.library.embedder = watched
    return watched


@dataclass
class Hashed:
    """An embedder that makes vectors from a text's characters, for tests that do not depend on meaning."""

    name: str = "hashed"
    dimensions: int = 384
    min_similarity: float = 0.5

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [await self.embed_question(text) for text in texts]

    async def embed_question(self, question: str) -> Vector:
        chance = random.Random(question)
        return [chance.uniform(-1, 1) for _ in range(self.dimensions)]


# Adding


async def test_a_note_is_added_read_and_found(world: World) -> None:
    note = await added(world, REFUNDS, id="refunds", title="Returns")
    assert {name: note[name] for name in ("id", "title", "file_name", "characters", "chunks", "unchanged")} == {
        "id": "refunds",
        "title": "Returns",
        "file_name": None,
        "characters": len(REFUNDS),
        "chunks": 1,
        "unchanged": False,
    }
    shown = (await world.http.get("/api/notes/refunds")).json()
    assert shown["text"] == REFUNDS
    assert shown["created_at"] == note["created_at"]
    [passage] = (await found(world, "How long can I return something I bought?"))["passages"]
    assert (passage["id"], passage["title"], passage["text"]) == ("refunds", "Returns", REFUNDS)
    assert await listed(world) == ["refunds"]
    await assert_note_counts_agree(world)


async def test_adding_the_same_note_again_changes_nothing(world: World) -> None:
    before = await added(world, REFUNDS, id="refunds")
    embedder = watch(world)
    for body in ({"id": "refunds"}, {"id": "refunds", "title": before["title"]}, {}, {"title": "Another title"}):
        again = await add(world, REFUNDS, **body)
        assert again.status_code == 200, body
        assert again.json() == {**before, "unchanged": True}
    assert embedder.given == []
    assert await counts(world) == (1, 1)
    await assert_note_counts_agree(world)


async def test_an_id_that_has_other_content_is_refused_before_anything_is_embedded(world: World) -> None:
    await added(world, REFUNDS, id="refunds")
    embedder = watch(world)
    assert "'refunds' with other content already; PUT" in detail(await add(world, PARKING, id="refunds"), 409)
    assert "other content" in detail(await add(world, REFUNDS, id="refunds", title="Another title"), 409)
    assert embedder.given == []
    assert await text_of(world, "refunds") == REFUNDS
    assert await counts(world) == (1, 1)


async def test_ids_are_readable_and_numbered_when_taken(world: World) -> None:
    for text, title, note_id in (
        (REFUNDS, "Our Refund Policy!", "our-refund-policy"),
        (PARKING, "Our refund policy", "our-refund-policy-2"),
        (COFFEE, "our-refund-policy", "our-refund-policy-3"),
        ("# Größe & Gewicht\n\nBis 30 kg.", "", "grosse-gewicht"),
        ("Find it here.", "Search", "search-2"),  # `search` is an address
        ("A text.", "日本語", "note-77710aed"),
    ):
        note = await added(world, text, title=title)
        assert note["id"] == note_id
        assert NOTE_ID.fullmatch(note["id"])
    long = await added(world, "word " * 200)
    assert len(long["id"]) <= 60
    assert len(long["title"]) <= 200
    await assert_note_counts_agree(world)


async def test_a_title_is_one_clean_line(world: World) -> None:
    note = await added(world, REFUNDS, title="  Returns \x1b[31m and\r\n refunds\u202e ")
    assert note["title"] == "Returns [31m and refunds"
    assert (await added(world, PARKING, title="\x1b\x07"))["title"] == "Note"


async def test_malformed_ids_are_refused(world: World) -> None:
    for note_id in ("", " ", "a b", "a/b", "../x", "a.b", "ä", "日本", "a\n", "x\x00", "search", "💥", "a,b", "]"):
        detail(await add(world, REFUNDS, id=note_id), 400)
    detail(await add(world, REFUNDS, id="x" * 81), 422)
    assert (await added(world, REFUNDS, id="x" * 80))["id"] == "x" * 80
    assert (await added(world, PARKING, id="-_-"))["id"] == "-_-"
    for address in ("x%00", "a%2Fb", "%F0%9F%92%A5", "search%20", "..%2f..", "%ED%A0%80"):
        for method in ("GET", "PUT", "DELETE"):
            json = {"text": COFFEE} if method == "PUT" else None
            detail(await world.http.request(method, f"/api/notes/{address}", json=json), 404)
    assert (await counts(world))[0] == 2


# Replacing and deleting


async def test_replacing_a_note_forgets_what_it_said(world: World) -> None:
    before = await added(world, f"# Returns\n\n{REFUNDS}\n\n# Parking\n\n{PARKING}", id="handbook", title="Handbook")
    assert before["chunks"] == 2
    await added(world, REFUNDS, id="refunds")
    answer = await put(world, "handbook", COFFEE)
    assert answer.status_code == 200
    after = answer.json()
    assert (after["title"], after["chunks"], after["unchanged"]) == ("Handbook", 1, False)
    assert after["created_at"] == before["created_at"]
    assert after["updated_at"] > before["updated_at"]
    assert await text_of(world, "handbook") == COFFEE
    passages = (await found(world, "Where do visitors park?", limit=20))["passages"]
    assert sorted(passage["text"] for passage in passages) == sorted([COFFEE, REFUNDS])
    assert await counts(world) == (2, 2)
    await assert_note_counts_agree(world)


async def test_putting_the_same_is_a_no_op_and_a_title_is_a_change(world: World) -> None:
    before = await added(world, REFUNDS, id="refunds", title="Returns")
    embedder = watch(world)
    for more in ({}, {"title": "Returns"}, {"title": " "}, {"id": "refunds"}):
        assert (await put(world, "refunds", REFUNDS, **more)).json() == {**before, "unchanged": True}
    assert embedder.given == []
    renamed = (await put(world, "refunds", REFUNDS, title="Money back")).json()
    assert (renamed["title"], renamed["unchanged"]) == ("Money back", False)
    assert embedder.given  # a title stands before what is embedded
    await assert_note_counts_agree(world)


async def test_what_is_not_there_is_neither_replaced_nor_deleted(world: World) -> None:
    assert "no note 'refunds'" in detail(await put(world, "refunds", REFUNDS), 404)
    detail(await world.http.delete("/api/notes/refunds"), 404)
    detail(await world.http.get("/api/notes/refunds"), 404)
    detail(await put(world, "search", REFUNDS), 404)
    await added(world, REFUNDS, id="refunds")
    assert "the id in the path" in detail(await put(world, "refunds", PARKING, id="parking"), 400)
    assert await counts(world) == (1, 1)


async def test_a_deleted_note_is_gone_with_its_passages(world: World) -> None:
    await added(world, REFUNDS, id="refunds")
    await added(world, PARKING, id="parking")
    response = await world.http.delete("/api/notes/refunds")
    assert (response.status_code, response.content) == (204, b"")
    for method in ("GET", "DELETE"):
        detail(await world.http.request(method, "/api/notes/refunds"), 404)
    passages = (await found(world, "How long can I return something I bought?"))["passages"]
    assert [passage["id"] for passage in passages] == ["parking"]
    await assert_note_counts_agree(world)
    await world.http.delete("/api/notes/parking")
    assert await found(world, "Where do visitors park?") == {
        "passages": [],
        "best_similarity": 0.0,
        "relevance": 0.0,
        "min_similarity": world.app.retriever.embedder.min_similarity,
    }
    assert await world.sql("SELECT chunks FROM note_counts") == [(0,)]
    assert (await added(world, REFUNDS, id="refunds"))["unchanged"] is False


# Listing and searching


async def test_the_list_pages_through_all_notes_the_latest_first(world: World) -> None:
    world.app.library.embedder = Hashed()
    assert (await world.http.get("/api/notes")).json() == {"notes": [], "next": None}
    for number in range(7):
        await added(world, f"Note number {number}.", id=f"n{number}")
    await put(world, "n2", "Another text.")
    seen: list[str] = []
    before: str | None = None
    while True:
        query = {"limit": 3} if before is None else {"limit": 3, "before": before}
        shown = (await world.http.get("/api/notes", params=query)).json()
        seen += [note["id"] for note in shown["notes"]]
        if (before := shown["next"]) is None:
            break
        assert len(shown["notes"]) == 3
    assert seen == ["n2", "n6", "n5", "n4", "n3", "n1", "n0"]
    assert "text" not in (await world.http.get("/api/notes")).json()["notes"][0]


async def test_notes_of_one_moment_are_each_listed_once(world: World) -> None:
    world.app.library.embedder = Hashed()
    for number in range(5):
        await added(world, f"Note number {number}.", id=f"n{number}")
    await world.sql("UPDATE notes SET updated_at = '2026-01-01 12:00:00.000001+00'")
    first = (await world.http.get("/api/notes", params={"limit": 2})).json()
    assert first["next"] == "2026-01-01T12:00:00.000001Z~n3"
    assert await listed(world, before=first["next"]) == ["n2", "n1", "n0"]


async def test_malformed_cursors_are_refused(world: World) -> None:
    await added(world, REFUNDS, id="refunds")
    thread = (await world.http.post("/api/threads")).json()["id"]
    now = "2026-01-01T12:00:00.000000Z"
    for cursor in (
        *("", "~", "refunds", now, f"{now}~", f"{now}~a b", f"{now}~x\x00", "~refunds", thread, f"{now}~{'x' * 81}"),
        *("2026-01-01~refunds", "2026-01-01T12:00:00~refunds", "infinity~refunds", "99999-01-01T00:00:00Z~x"),
        *("2026-01-01T00:00:00+00:00:30.5~refunds", "0001-01-01T00:00:00+23:59~refunds", "\x00~x", "٢٠٢٦~x"),
    ):
        assert "cursor" in detail(await world.http.get("/api/notes", params={"before": cursor}), 400), cursor
    assert await listed(world, before="9999-12-31T23:59:59.999999Z~zz") == ["refunds"]
    assert await listed(world, before="0001-01-01T00:00:00.000000Z~zz") == []
    for limit in ("0", "-1", "501", "x", "1e2"):
        detail(await world.http.get("/api/notes", params={"limit": limit}), 422)


async def test_search_orders_by_what_fits_and_says_how_well(world: World) -> None:
    for note_id, text in (("refunds", REFUNDS), ("parking", PARKING), ("coffee", COFFEE)):
        await added(world, text, id=note_id)
    answer = await found(world, "How long can I return something I bought?")
    assert answer["passages"][0]["id"] == "refunds"
    similar = [passage["similarity"] for passage in answer["passages"]]
    assert answer["best_similarity"] == max(similar) == similar[0]
    assert answer["best_similarity"] > answer["min_similarity"] == world.app.retriever.embedder.min_similarity
    assert all(-1 <= one <= 1 for one in similar)
    beside = await found(world, "Which planet has the most moons?")
    assert beside["best_similarity"] < beside["min_similarity"]
    assert len((await found(world, "return", limit=2))["passages"]) == 2
    async with world.database.statement() as connection:
        await Notes(connection).set_min_similarity("local", world.app.library.embedder.name, 0.125)
    assert (await found(world, "return"))["min_similarity"] == 0.125


async def test_whatever_is_asked_the_search_answers(world: World) -> None:
    await added(world, REFUNDS, id="refunds")
    for question in (
        *("the of and", "'", "\\", "a' & !b | (c:*", "<->", "% %s %(owner)s {near}", "@bot", " ", "", "💥", "\ufffe"),
        *("x" * 4000, "goods " * 600, "'; DROP TABLE notes; --", "\u202egoods", "日本語の質問", "a\\'b:A"),
    ):
        answer = await found(world, question)
        assert len(answer["passages"]) <= 1
    detail(await world.http.get("/api/notes/search", params={"q": "a\x00b"}), 400)
    detail(await world.http.get("/api/notes/search", params={"q": "x" * 4001}), 422)
    detail(await world.http.get("/api/notes/search"), 422)
    for limit in ("0", "21", "x"):
        detail(await world.http.get("/api/notes/search", params={"q": "goods", "limit": limit}), 422)
    assert (await world.http.get("/api/notes/search?q=%ED%A0%80")).status_code == 200


# Files


def pdf(*lines: str) -> bytes:
    """A PDF with a page of lines."""
    drawn = "\n".join(f"1 0 0 1 72 {780 - 14 * number} Tm ({line}) Tj" for number, line in enumerate(lines))
    stream = f"BT /F1 11 Tf\n{drawn}\nET"
    parts = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    written = "%PDF-1.4\n"
    places: list[int] = []
    for number, part in enumerate(parts, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{part}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    return f"{written}xref\n0 6\n0000000000 65535 f \n{table}{trailer}".encode()


def locked_pdf() -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(REFUNDS))))
    writer.encrypt("secret", algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def word(*paragraphs: str) -> bytes:
    document = docx.Document()
    document.add_heading("Returns", 1)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def bomb() -> bytes:
    """A Word document that unpacks to half as much again as is allowed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("word/document.xml", "w") as part:
        for _ in range(150):
            part.write(b" " * 1_000_000)
    return file.getvalue()


PAGE = f"<!doctype html><title>Returns</title><script>alert(1)</script><h1>Returns</h1><p>{REFUNDS}</p>"


@pytest.mark.parametrize(
    ("name", "data", "title"),
    [
        ("Refund policy.txt", REFUNDS.encode(), "Refund policy"),
        ("Refund policy.md", f"# Returns\n\n{REFUNDS}".encode(), "Returns"),
        ("Refund policy.html", PAGE.encode(), "Returns"),
        ("Refund policy.pdf", pdf(REFUNDS), "Refund policy"),
        ("Refund policy.docx", word(REFUNDS), "Returns"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
async def test_a_file_becomes_a_note_and_its_new_version_replaces_it(
    world: World, name: str, data: bytes, title: str
) -> None:
    response = await upload(world, name, data)
    assert response.status_code == 201, response.text
    note = response.json()
    assert (note["id"], note["title"], note["file_name"]) == ("refund-policy", title, name)
    [passage] = (await found(world, "How long can I return something I bought?"))["passages"]
    assert "within 30 days" in passage["text"]
    assert passage["similarity"] > world.app.retriever.embedder.min_similarity

    embedder = watch(world)
    again = await upload(world, f"C:\\Users\\ana\\{name}", data)
    assert (again.status_code, again.json()) == (200, {**note, "unchanged": True})
    assert embedder.given == []

    changed = {"pdf": pdf(COFFEE), "docx": word(COFFEE)}.get(name[-4:].strip("."), COFFEE.encode())
    replaced = await upload(world, name, changed)
    assert (replaced.status_code, replaced.json()["id"], replaced.json()["unchanged"]) == (200, note["id"], False)
    assert "coffee machine" in await text_of(world, note["id"])
    assert await counts(world) == (1, replaced.json()["chunks"])
    await assert_note_counts_agree(world)


async def test_an_upload_may_say_its_id_and_title(world: World) -> None:
    data = f"# Returns\n\n{REFUNDS}".encode()
    note = (await upload(world, "policy.md", data, id="Refunds_1", title="Money back")).json()
    assert (note["id"], note["title"], note["file_name"]) == ("Refunds_1", "Money back", "policy.md")
    same = await upload(world, "policy.md", data, id="Refunds_1", title="Money back")
    assert (same.status_code, same.json()["unchanged"]) == (200, True)
    unnamed = await upload(world, "policy.md", data, id="Refunds_1")
    assert (unnamed.status_code, unnamed.json()["title"]) == (200, "Money back")
    detail(await upload(world, "other.md", COFFEE.encode(), id="Refunds_1"), 409)
    # A file is known by its name, whatever its note is called.
    newer = await upload(world, "policy.md", PARKING.encode())
    assert (newer.status_code, newer.json()["id"]) == (200, "Refunds_1")
    # An empty field of a form counts as missing.
    empty = await upload(world, "Coffee.txt", COFFEE.encode(), id="", title="")
    assert (empty.status_code, empty.json()["id"], empty.json()["title"]) == (201, "coffee", "Coffee")
    await assert_note_counts_agree(world)


async def test_a_note_is_replaced_by_a_file_with_put(world: World) -> None:
    await added(world, REFUNDS, id="handbook", title="Handbook")
    replaced = await world.http.put("/api/notes/handbook", files={"file": ("new.pdf", pdf(COFFEE))})
    assert (replaced.status_code, replaced.json()["id"], replaced.json()["title"]) == (200, "handbook", "Handbook")
    assert "coffee machine" in await text_of(world, "handbook")
    named = await world.http.put(
        "/api/notes/handbook", files={"file": ("new.md", f"# Parking\n\n{PARKING}")}, data={"title": "The handbook"}
    )
    assert (named.status_code, named.json()["title"]) == (200, "The handbook")
    assert await counts(world) == (1, 1)


async def test_a_file_never_overwrites_what_was_written_by_hand(world: World) -> None:
    await added(world, REFUNDS, id="policy")
    file = await upload(world, "policy.txt", PARKING.encode())
    assert (file.status_code, file.json()["id"]) == (201, "policy-2")
    # Not even when the place beside it becomes free: the file's note is where it was.
    await world.http.delete("/api/notes/policy")
    newer = await upload(world, "policy.txt", COFFEE.encode())
    assert (newer.status_code, newer.json()["id"]) == (200, "policy-2")
    # Another kind of file of that name is another file.
    other = await upload(world, "policy.md", REFUNDS.encode())
    assert (other.status_code, other.json()["id"]) == (201, "policy")
    assert [await text_of(world, note_id) for note_id in ("policy", "policy-2")] == [REFUNDS, COFFEE]
    await assert_note_counts_agree(world)


async def test_a_file_never_overwrites_what_was_written_by_hand_meanwhile(world: World) -> None:
    await upload(world, "policy.txt", REFUNDS.encode())
    embedder = watch(world)
    gate = embedder.gate = asyncio.Event()
    replacing = asyncio.create_task(upload(world, "policy.txt", PARKING.encode()))
    await embedder.begun.wait()
    await world.http.delete("/api/notes/policy")
    embedder.gate = None
    await added(world, COFFEE, id="policy")
    gate.set()
    assert (await replacing).json()["id"] == "policy-2"
    assert (await text_of(world, "policy"), await text_of(world, "policy-2")) == (COFFEE, PARKING)
    await assert_note_counts_agree(world)


async def test_a_file_below_very_many_folders_is_known_again(world: World) -> None:
    path = "/".join(str(number**7) for number in range(400)) + "/policy.txt"
    library = world.app.library
    first = await library.add("local", REFUNDS, file_name=path)
    second = await library.add("local", PARKING, file_name=path)
    assert (first.is_new, second.is_new, second.note.id) == (True, False, first.note.id)


async def test_a_file_that_becomes_like_another_does_not_keep_what_it_said_before(world: World) -> None:
    await upload(world, "a.txt", REFUNDS.encode())
    await upload(world, "b.txt", PARKING.encode())
    assert (await upload(world, "a.txt", PARKING.encode())).json()["id"] == "a"
    assert await text_of(world, "a") == PARKING
    assert (await upload(world, "c.txt", PARKING.encode())).json()["unchanged"] is True  # a new name for a known text
    assert sorted(await listed(world)) == ["a", "b"]


# What must be refused


class Bad(NamedTuple):
    """A request that is refused, and a part of the sentence that says why."""

    what: str
    status: int
    says: str
    content: bytes
    type: str = "application/json"


BOUNDARY = "XsimplebundaryX"


def form(*parts: tuple[str, bytes]) -> bytes:
    """A multipart body of (what follows `form-data; `, data)."""
    body = b"".join(
        b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n"
        % (BOUNDARY.encode(), head.encode("utf-8", "surrogateescape"), data)
        for head, data in parts
    )
    return body + b"--%s--\r\n" % BOUNDARY.encode()


def bad_file(what: str, status: int, says: str, name: str, data: bytes) -> Bad:
    return Bad(what, status, says, form((f'name="file"; filename="{name}"', data)), FORM)


FORM = f"multipart/form-data; boundary={BOUNDARY}"
TEXT = ('name="file"; filename="a.txt"', REFUNDS.encode())

BAD_JSON = (
    Bad("no body", 400, "not valid JSON", b""),
    Bad("half a body", 400, "not valid JSON", b'{"text": "hi"'),
    Bad("an array", 422, "", b'["hi"]'),
    Bad("no text", 422, "`text` is missing", b'{"id": "x"}'),
    Bad("text is null", 422, "text", b'{"text": null}'),
    Bad("text is a number", 422, "text", b'{"text": 7}'),
    Bad("an unknown field", 422, "no field `txt`", b'{"text": "hi", "txt": "hi"}'),
    Bad("somebody else's owner", 422, "no field `owner_id`", b'{"text": "hi", "owner_id": "ana"}'),
    Bad("an empty text", 400, "no text", b'{"text": ""}'),
    Bad("spaces only", 400, "no text", '{"text": " \\t\\n\u2003 "}'.encode()),
    Bad("NUL in the text", 400, "NUL", rb'{"text": "a\u0000b"}'),
    Bad("NUL in the title", 400, "NUL", rb'{"text": "hi", "title": "a\u0000b"}'),
    Bad("NUL in the id", 400, "characters A-Z", rb'{"text": "hi", "id": "a\u0000b"}'),
    Bad("half a surrogate in the text", 400, "not valid JSON", rb'{"text": "a\ud800b"}'),
    Bad("half a surrogate in the title", 400, "not valid JSON", rb'{"text": "hi", "title": "\udfff"}'),
    Bad("half a surrogate in the id", 400, "not valid JSON", rb'{"text": "hi", "id": "\ud800"}'),
    Bad("half a surrogate as bytes", 400, "not valid JSON", b'{"text": "\xed\xa0\x80"}'),
    Bad("a long title", 422, "title", b'{"text": "hi", "title": "%s"}' % (b"x" * 201)),
    Bad("500,001 characters", 413, "500,001 characters", b'{"text": "%s"}' % (b"x" * 500_001)),
    Bad("over 2 MB", 413, "2,000,000 bytes", b'{"text": "%s"}' % (b"x" * 2_000_000)),
    Bad("10 MB", 413, "2,000,000 bytes", b'{"text": "%s"}' % (b"x" * 10_000_000)),
    Bad("a form of a page", 415, "multipart/form-data", b"text=hi", "application/x-www-form-urlencoded"),
    Bad("plain text", 415, "multipart/form-data", b"hi", "text/plain"),
    Bad("a bare file", 415, "multipart/form-data", pdf(REFUNDS), "application/pdf"),
    Bad("no content type", 415, "multipart/form-data", b'{"text": "hi"}', ""),
)

BAD_FORMS = (
    Bad("no file", 400, "field `file`", form(('name="title"', b"Returns")), FORM),
    Bad("a file as a field", 400, "field `file`", form(('name="file"', b"text")), FORM),
    Bad("a file of another name", 400, "field `file`", form(('name="document"; filename="a.txt"', b"text")), FORM),
    Bad("two files", 400, "Too many files", form(TEXT, TEXT), FORM),
    Bad("a file and a text", 400, "one of them", form(TEXT, ('name="text"', b"hi")), FORM),
    Bad("an unknown field", 422, "no field `owner`", form(TEXT, ('name="owner"', b"ana")), FORM),
    Bad("many fields", 400, "Too many fields", form(TEXT, *[('name="title"', b"x")] * 9), FORM),
    Bad("a huge field", 400, "maximum size", form(TEXT, ('name="title"', b"x" * 200_000)), FORM),
    Bad("a long title", 422, "title", form(TEXT, ('name="title"', b"x" * 201)), FORM),
    Bad("NUL in the title", 400, "NUL", form(TEXT, ('name="title"', b"a\x00b")), FORM),
    Bad("a bad id", 400, "characters A-Z", form(TEXT, ('name="id"', b"../x")), FORM),
    Bad("a reserved id", 400, "'search'", form(TEXT, ('name="id"', b"search")), FORM),
    Bad("an empty form", 400, "field `file`", form(), FORM),
    Bad("an empty body", 400, "field `file`", b"", FORM),
    Bad("no boundary", 400, "boundary", form(TEXT), "multipart/form-data"),
    Bad("another boundary", 400, "multipart", form(TEXT), "multipart/form-data; boundary=other"),
    Bad("a broken header", 400, "", b"--%s\r\n\x00\xff: x\r\n\r\nhi\r\n" % BOUNDARY.encode(), FORM),
    Bad("no name", 400, "name", form(('filename="a.txt"', b"hi")), FORM),
    Bad("an encoding to fail", 400, "encoding", form(TEXT, ('name="title"', b"hi")), f"{FORM}; charset=undefined"),
    Bad("half a surrogate", 422, "unicode", form(TEXT, ('name="title"', b"+2AA-")), f"{FORM}; charset=utf-7"),
)


def list_bad_files() -> Sequence[Bad]:
    """Make them when the test runs: they have 70 MB, and every process collects this module."""
    return (
        bad_file("an empty file", 400, "is empty", "a.txt", b""),
        bad_file("an empty file name", 400, "can't be read here", "", b"hi"),
        bad_file("no extension", 400, "can't be read here", "README", b"hi"),
        bad_file("a program", 400, "can't be read here", "a.exe", b"MZ\x90\x00"),
        bad_file("NUL bytes", 400, "NUL", "a.txt", b"a\x00b" * 100),
        bad_file("spaces only", 400, "no visible text", "a.md", b" \n\t "),
        bad_file("a picture called text", 400, "it is a picture", "a.txt", b"\x89PNG\r\n\x1a\n"),
        bad_file("a page called PDF", 400, "it is a web page", "a.pdf", PAGE.encode()),
        bad_file("text called Word", 400, "something else", "a.docx", REFUNDS.encode()),
        bad_file("a PDF called Word", 400, "it is a PDF", "a.docx", pdf(REFUNDS)),
        bad_file("a broken PDF", 400, "damaged", "a.pdf", b"%PDF-1.7\n" + b"\x9c" * 5000),
        bad_file("a locked PDF", 400, "password", "a.pdf", locked_pdf()),
        bad_file("a PDF without text", 400, "OCR", "a.pdf", pdf("")),
        bad_file("a zip bomb", 413, "unpacks to far more", "a.docx", bomb()),
        bad_file("a million characters in a line", 413, "500,000 characters", "a.txt", b"x" * 1_000_000),
        bad_file("a million characters in a page", 413, "500,000 characters", "a.html", b"<p>" + b"x" * 1_000_000),
        bad_file("a little over 20 MB", 413, "20,000,001 bytes", "a.pdf", b"%PDF-" + b"x" * 19_999_996),
        bad_file("50 MB", 413, "at most 20,000,000", "a.pdf", b"%PDF-1.7\n" + b"\x00" * 50_000_000),
    )


@pytest.mark.parametrize(
    "list_bad", [lambda: BAD_JSON, lambda: BAD_FORMS, list_bad_files], ids=["json", "forms", "files"]
)
async def test_an_invalid_note_is_refused_with_a_message_and_stores_nothing(
    world: World, list_bad: Callable[[], Sequence[Bad]]
) -> None:
    kept = (await added(world, COFFEE, id="kept"))["id"]
    embedder = watch(world)
    for bad in list_bad():
        headers = {"Content-Type": bad.type} if bad.type else {}
        for method, path in (("POST", "/api/notes"), ("PUT", f"/api/notes/{kept}")):
            response = await world.http.request(method, path, content=bad.content, headers=headers)
            if (method, bad.what) == ("PUT", "a reserved id"):
                continue  # there it is just another one than in the address
            assert response.status_code == bad.status, (bad.what, response.text[:300])
            if method == "POST":
                assert bad.says in detail(response, bad.status), bad.what
        assert (await world.http.get("/readyz")).status_code == 200, bad.what
        assert await counts(world) == (1, 1), bad.what
    assert embedder.given == []
    assert await text_of(world, kept) == COFFEE
    await assert_note_counts_agree(world)


async def test_a_client_that_is_still_sending_can_read_the_answer(world: World) -> None:
    """Also a client that does not send a content length."""

    async def endless(head: bytes, pieces: int) -> AsyncIterator[bytes]:
        yield head
        for _ in range(pieces):
            yield b"x" * 1_000_000

    start = form(('name="file"; filename="a.pdf"', b"")).split(b"\r\n--")[0]
    response = await world.http.post("/api/notes", content=endless(start, 50), headers={"Content-Type": FORM})
    assert re.search(r"The upload has 50,\d{3},\d{3} bytes; at most 20,000,000", detail(response, 413))
    response = await world.http.post(
        "/api/notes", content=endless(b'{"text": "', 50), headers={"Content-Type": "application/json"}
    )
    detail(response, 413)
    assert await counts(world) == (0, 0)


async def test_a_hostile_file_name_leads_nowhere(world: World) -> None:
    world.app.library.embedder = Hashed()
    for number, (name, file_name, note_id) in enumerate(
        (
            ("../../etc/passwd.txt", "passwd.txt", "passwd"),
            ("C:\\\\temp\\\\notes.txt", "notes.txt", "notes"),
            ("a\tb\x1b[31mred.txt", "a b[31mred.txt", "a-b-31mred"),
            ("\u202efdp.txt", "fdp.txt", "fdp"),
            ("résumé 日本.txt", "résumé 日本.txt", "resume"),
            ("x" * 3000 + ".txt", "x" * 199 + "….txt", "x" * 60),
            ("caf\udce9.txt", "café.txt", "cafe"),
            (".txt", ".txt", make_note_id(".txt")),
            ("search.txt", "search.txt", "search-2"),
            ("a.txt%00.pdf.txt", "a.txt%00.pdf.txt", "a-txt-00-pdf"),
        )
    ):
        for status in (201, 200):
            response = await world.http.post(
                "/api/notes",
                content=form((f'name="file"; filename="{name}"', f"{REFUNDS} {number}".encode())),
                headers={"Content-Type": FORM},
            )
            assert response.status_code == status, response.text
            note = response.json()
            assert (note["file_name"], note["id"]) == (file_name, note_id)
            assert note["title"].isprintable()
    await assert_note_counts_agree(world)


async def test_the_largest_note_fits_and_is_searched(database_url: str) -> None:
    async with open_world(database_url, embeddings="wordllama") as world:
        paragraphs = [
            f"Paragraph {number} is about subject {number * 7919} and no other one." for number in range(9_000)
        ]
        paragraphs.insert(3_000, COFFEE)
        text = "\n\n".join(paragraphs)[:499_000] + "\n\n" + "x" * 998
        assert len(text) == 500_000
        note = await added(world, text, id="large")
        assert note["characters"] == 500_000
        assert note["chunks"] > 900
        assert COFFEE in (await found(world, "When is the coffee machine descaled?"))["passages"][0]["text"]
        line = await upload(world, "line.txt", b"y" * 400_000)
        assert line.status_code == 201
        await assert_note_counts_agree(world)


async def test_a_note_that_nobody_could_see_is_refused(world: World) -> None:
    for text in ("\u200b", "\u200b\n\u2060", "\ufeff", "\x01"):
        assert detail(await add(world, text), 400) == "The note has no text."
    assert await counts(world) == (0, 0)


async def test_a_note_of_nothing_but_headings_is_refused_before_anything_is_embedded(world: World) -> None:
    embedder = watch(world)
    assert "124,750 headings" in detail(await add(world, "# a\n" * 124_750), 413)
    assert embedder.given == []


async def test_notes_are_taken_in_a_few_at_a_time(world: World) -> None:
    world.app.library.max_under_way = 100
    embedder = watch(world)
    embedder.gate = asyncio.Event()
    first = asyncio.create_task(add(world, REFUNDS))
    await embedder.begun.wait()
    second = await add(world, PARKING)
    assert "as many notes as it can" in detail(second, 503)
    assert second.headers["retry-after"] == "30"
    embedder.gate.set()
    assert (await first).status_code == 201
    assert (await add(world, PARKING)).status_code == 201


async def test_nearly_empty_text_is_stored_or_refused_without_an_error(world: World) -> None:
    world.app.library.embedder = Hashed()
    for text in (
        "#",
        "---",
        "***",
        "\u200b",
        "\u200b\n\u2060",
        "```",
        "|",
        "- ",
        "> ",
        "# \n#",
        "\ufeff",
        ".",
        "\x01",
        "==",
    ):
        response = await add(world, text)
        assert response.status_code in (200, 201, 400), (text, response.text)
    await assert_note_counts_agree(world)


# Owners


async def test_notes_are_seen_found_and_changed_by_their_owner_only(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, ben = await make_key(world, "ben")
    await until_closed(world)
    secret = "The safe behind the painting opens with 31-41-59."
    await added(world, secret, id="secret", headers=ana)
    await added(world, COFFEE, id="coffee", headers=ben)
    before = await world.sql("SELECT owner_id, id, text FROM notes ORDER BY owner_id")

    for method, body in (("GET", None), ("PUT", {"text": REFUNDS}), ("DELETE", None)):
        foreign = await world.http.request(method, "/api/notes/secret", json=body, headers=ben)
        missing = await world.http.request(method, "/api/notes/missing", json=body, headers=ben)
        assert detail(foreign, 404) == detail(missing, 404).replace("missing", "secret")
        detail(await world.http.request(method, "/api/notes/secret", json=body), 401)
    assert [note["id"] for note in (await world.http.get("/api/notes", headers=ben)).json()["notes"]] == ["coffee"]
    detail(await world.http.get("/api/notes"), 401)
    detail(await world.http.get("/api/notes/search", params={"q": "safe"}), 401)
    detail(await add(world, REFUNDS), 401)
    detail(await upload(world, "a.txt", b"hi"), 401)

    # Ana's note is by far the better match.
    answer = await found(world, "What opens the safe behind the painting?", limit=20, headers=ben)
    assert [passage["id"] for passage in answer["passages"]] == ["coffee"]
    assert answer["best_similarity"] < answer["min_similarity"]
    assert await world.sql("SELECT owner_id, id, text FROM notes ORDER BY owner_id") == before

    # A text that somebody else has is new, and so is an id.
    assert (await added(world, secret, headers=ben))["unchanged"] is False
    his = await added(world, REFUNDS, id="secret", headers=ben)
    assert his["id"] == "secret"
    assert (await world.http.delete("/api/notes/secret", headers=ben)).status_code == 204
    assert (await world.http.get("/api/notes/secret", headers=ana)).json()["text"] == secret
    await assert_note_counts_agree(world)


# At the same time


async def test_many_writers_of_one_note_leave_the_note_of_one_of_them(world: World) -> None:
    await added(world, REFUNDS, id="shared")
    texts = [f"# Version {number}\n\n" + f"{COFFEE} It is version {number}.\n\n" * (number + 1) for number in range(10)]
    others = [f"The meeting room {number} has {number} chairs." for number in range(10)]
    responses = await asyncio.gather(
        *(put(world, "shared", text) for text in texts),
        *(add(world, text, title="Meeting room") for text in others),
        *(add(world, text, id=f"room-{number}") for number, text in enumerate(others)),
    )
    assert [response.status_code for response in responses[:10]] == [200] * 10
    assert {response.status_code for response in responses[10:]} <= {200, 201}
    assert await text_of(world, "shared") in texts
    assert set(others) <= {await text_of(world, note_id) for note_id in await listed(world)}
    await assert_note_counts_agree(world)


@pytest.mark.parametrize("fields", [{}, {"id": "refunds"}, {"title": "Returns"}], ids=str)
async def test_the_same_note_sent_many_times_at_once_is_one_note(world: World, fields: dict[str, str]) -> None:
    responses = await asyncio.gather(*(add(world, REFUNDS, **fields) for _ in range(8)))
    assert sorted(response.status_code for response in responses) == [200] * 7 + [201]
    assert sum(response.json()["unchanged"] for response in responses) == 7
    assert await counts(world) == (1, 1)
    await assert_note_counts_agree(world)


async def test_versions_of_a_file_sent_at_once_are_one_note(world: World) -> None:
    versions = [f"{COFFEE} Version {number}.".encode() for number in range(8)]
    responses = await asyncio.gather(*(upload(world, "coffee.txt", data) for data in versions))
    assert sorted(response.status_code for response in responses) == [200] * 7 + [201]
    assert {response.json()["id"] for response in responses} == {"coffee"}
    assert await listed(world) == ["coffee"]
    await assert_note_counts_agree(world)


async def test_a_note_that_is_deleted_while_it_is_replaced_stays_deleted(world: World) -> None:
    await added(world, REFUNDS, id="refunds")
    embedder = watch(world)
    embedder.gate = asyncio.Event()
    replacing = asyncio.create_task(put(world, "refunds", PARKING))
    await embedder.begun.wait()
    assert (await world.http.delete("/api/notes/refunds")).status_code == 204
    embedder.gate.set()
    detail(await replacing, 404)
    assert await counts(world) == (0, 0)
    await assert_note_counts_agree(world)


async def test_deleting_and_replacing_at_once_leave_all_or_nothing(world: World) -> None:
    world.app.library.embedder = Hashed()
    for _ in range(10):
        await added(world, REFUNDS, id="refunds")
        replaced, deleted = await asyncio.gather(
            put(world, "refunds", f"{PARKING}\n\n# More\n\n{COFFEE}"), world.http.delete("/api/notes/refunds")
        )
        assert replaced.status_code in (200, 404)
        assert deleted.status_code == 204
        assert await counts(world) == (0, 0)
        await assert_note_counts_agree(world)


async def test_reindexing_never_brings_back_what_was_deleted_or_replaced(world: World) -> None:
    for note_id in ("deleted", "replaced"):
        await added(world, REFUNDS, id=note_id, title=note_id)
    gate = asyncio.Event()
    embedder = Watched(Hashed(), gate=gate)
    library = Library(world.database, embedder)
    running = [asyncio.create_task(library.reindex("local", note_id)) for note_id in ("deleted", "replaced")]
    await embedder.begun.wait()
    await world.http.delete("/api/notes/deleted")
    await put(world, "replaced", PARKING)
    gate.set()
    outcomes = await asyncio.gather(*running, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NotFound, Conflict]
    assert await listed(world) == ["replaced"]
    assert await text_of(world, "replaced") == PARKING
    await assert_note_counts_agree(world)


async def test_an_embedder_that_fails_halfway_leaves_everything_as_it_was(world: World) -> None:
    await added(world, REFUNDS, id="refunds")
    long = "\n\n".join(f"# Section {number}\n\n{COFFEE}" for number in range(40))
    embedder = watch(world)
    embedder.fails_at = 32
    for response in (
        await add(world, long, id="long"),
        await add(world, long),
        await put(world, "refunds", long),
        await upload(world, "long.txt", long.encode()),
    ):
        embedder.given.clear()
        assert response.headers["retry-after"] == "7"
        assert "embedder is not there" in detail(response, 503)
    assert await counts(world) == (1, 1)
    assert await text_of(world, "refunds") == REFUNDS
    await assert_note_counts_agree(world)
    embedder.fails_at = None
    assert (await put(world, "refunds", long)).json()["chunks"] == 40
    await assert_note_counts_agree(world)


# Other embedders


async def test_the_same_note_after_a_change_of_embedders_is_indexed_anew_and_not_doubled(database: Database) -> None:
    small, large = Library(database, Hashed("small", 64)), Library(database, Hashed("large", 1536))
    first = await small.add("local", REFUNDS, title="Returns")
    await small.add("local", PARKING, note_id="parking")
    await small.add("local", COFFEE, file_name="coffee.txt")
    again = [
        await large.add("local", REFUNDS, title="Returns"),
        await large.add("local", PARKING, note_id="parking"),
        await large.add("local", COFFEE, file_name="coffee.txt"),
    ]
    assert [(one.note.id, one.note.embedder, one.is_new, one.unchanged) for one in again] == [
        (note_id, "large", False, False) for note_id in ("returns", "parking", "coffee")
    ]
    assert again[0].note.updated_at == first.note.updated_at  # it says what it said
    async with database.statement() as connection:
        note_counts = await connection.execute("SELECT embedder, chunks FROM note_counts ORDER BY embedder")
        assert await note_counts.fetchall() == [("large", 3), ("small", 0)]
    await assert_note_counts_agree(database)


async def test_many_first_notes_of_a_new_embedder_do_not_starve_each_other(database: Database) -> None:
    """There are more writers than connections: the index is created once, and every writer finishes."""
    library = Library(database, Hashed("new", 300))
    made = await asyncio.gather(*(library.add("local", f"{COFFEE} {number}") for number in range(16)))
    assert len({one.note.id for one in made}) == 16
    async with database.statement() as connection:
        indexes = await connection.execute(
            "SELECT indexname FROM pg_indexes WHERE indexname = 'sentence_vectors_near_300'"
        )
        assert len(await indexes.fetchall()) == 1
    await assert_note_counts_agree(database)


async def everything(database: Database) -> dict[tuple[str, str], str]:
    """Every note's text by owner and id."""
    async with database.statement() as connection:
        rows = await connection.execute("SELECT owner_id, id, text FROM notes")
        return {(owner, note_id): text for owner, note_id, text in await rows.fetchall()}


@every_case("seed", range(3))
async def test_any_sequence_of_note_operations_has_its_documented_effect(database: Database, seed: int) -> None:
    """Two owners, two embedders, notes by hand and by file: a step changes one note or nothing, and the counts agree."""
    chance = random.Random(seed)
    libraries = [Library(database, Hashed("one")), Library(database, Hashed("two", 64))]
    texts = [f"# Part\n\n{text} {number}\n\n# More\n\n{text}" for text in (REFUNDS, COFFEE) for number in range(2)]
    did: dict[str, int] = {}
    for _ in range(100):
        library, owner, text = chance.choice(libraries), chance.choice(["ana", "ben"]), chance.choice(texts)
        note_id, file_name = chance.choice(["a", "b", "a-2"]), chance.choice(["a.txt", "c.txt"])
        steps: list[Callable[[], Awaitable[AddedNote | None]]] = [
            partial(library.add, owner, text, note_id=note_id),
            partial(library.add, owner, text, title="A"),
            partial(library.add, owner, text, file_name=file_name),
            partial(library.replace, owner, note_id, text),
            partial(library.reindex, owner, note_id),
            partial(library.delete, owner, note_id),
        ]
        before = await everything(database)
        number = chance.randrange(len(steps))
        try:
            outcome = await steps[number]()
        except (Conflict, NotFound) as error:
            what, expected = type(error).__name__, before
        else:
            what, expected = expected_after(before, (owner, note_id), text, outcome)
            if number == 4:
                expected = before  # indexed anew, it says what it said
        assert await everything(database) == expected
        await assert_note_counts_agree(database)
        did[what] = did.get(what, 0) + 1
    assert did.keys() >= {"Conflict", "NotFound", "deleted", "unchanged", "added", "replaced"}


def expected_after(
    before: dict[tuple[str, str], str], place: tuple[str, str], text: str, outcome: AddedNote | None
) -> tuple[str, dict[tuple[str, str], str]]:
    """The reported result of a step, and the state that it must leave."""
    if outcome is None:
        return "deleted", {key: value for key, value in before.items() if key != place}
    here = (place[0], outcome.note.id)
    if outcome.unchanged:
        assert before[here] == text
        return "unchanged", before
    assert outcome.is_new == (here not in before)
    return "added" if outcome.is_new else "replaced", {**before, here: text}


async def test_vectors_of_different_lengths_are_refused(database: Database) -> None:
    class Uneven(Hashed):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            return [[0.5] * (3 + number % 2) for number, _ in enumerate(texts)]

    text = f"# One\n\n{REFUNDS}\n\n# Two\n\n{COFFEE}"
    with pytest.raises(Transient, match="different lengths"):
        await Library(database, Uneven()).add("local", text)
    with pytest.raises(InvalidInput, match="4,000"):
        await Library(database, Hashed("huge", 4001)).add("local", text)
    await assert_note_counts_agree(database)

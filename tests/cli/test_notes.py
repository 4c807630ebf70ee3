"""Test `rapport notes`, `reindex` and the report of `doctor` about notes, with the real commands."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.commands import Home, Ran, Run, on_a_terminal

pytestmark = pytest.mark.e2e

REFUNDS = "Customers may send goods back within 30 days of purchase and get their money back."
PARKING = "Visitors park behind the building. The gate code changes every Monday; reception has it."
COFFEE = "The coffee machine on the second floor is descaled every Friday by the office team."


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder of files, two of the same name and one hidden."""
    folder = tmp_path / "docs"
    (folder / "guide").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "README.md").write_text(f"# Returns\n\n{REFUNDS}\n")
    (folder / "guide" / "README.md").write_text(f"# Parking\n\n{PARKING}\n")
    (folder / "coffee.TXT").write_text(COFFEE)
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n")
    (folder / ".git" / "hidden.txt").write_text("secret")
    return folder


def test_a_folder_is_added_and_added_again(rapport: Run, docs: Path) -> None:
    first = rapport("notes", "add", "docs")
    assert (first.code, first.err) == (0, "")
    assert first.out.splitlines() == [
        "✓ docs/README.md: added, readme (1 passage)",
        "✓ docs/coffee.TXT: added, coffee (1 passage)",
        "✓ docs/guide/README.md: added, readme-2 (1 passage)",
        "3 added.",
    ]
    (docs / "coffee.TXT").write_text(f"{COFFEE} Milk is in the fridge.")
    (docs / "new.html").write_text("<title>New</title><p>Something new.")
    second = rapport("notes", "add", "docs")
    assert second.code == 0
    assert second.out.splitlines() == [
        "✓ docs/README.md: unchanged, readme (1 passage)",
        "✓ docs/coffee.TXT: replaced, coffee (1 passage)",
        "✓ docs/guide/README.md: unchanged, readme-2 (1 passage)",
        "✓ docs/new.html: added, new (1 passage)",
        "1 added, 1 replaced, 2 unchanged.",
    ]
    assert rapport("notes", "show", "coffee").out == f"{COFFEE} Milk is in the fridge.\n"


def test_what_cannot_be_read_is_named_and_the_rest_is_added(rapport: Run, docs: Path, tmp_path: Path) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7 broken")
    (docs / "empty.txt").write_bytes(b"")
    (docs / "[red]markup[link=x].txt").write_text("[bold]Markup[/nonsense] is text like any other.")
    (docs / "bell\x07\x1b[31m.txt").write_text("A name that a terminal would obey.")
    Path(os.fsdecode(os.fsencode(docs) + b"/caf\xe9.txt")).write_text("A name in an old encoding.")
    with (tmp_path / "huge.pdf").open("wb") as huge:
        huge.truncate(3_000_000_000)  # takes no room on the disk
    os.mkfifo(tmp_path / "pipe.txt")
    ran = rapport("notes", "add", "docs", "missing.txt", "docs/picture.png", "huge.pdf", "pipe.txt")
    assert ran.code == 1
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert lines[-1] == "6 added, 6 failed."
    failed = {line.split(": ")[0].removeprefix("✗ "): line for line in lines if line.startswith("✗")}
    assert "is damaged" in failed["docs/broken.pdf"]
    assert "is empty" in failed["docs/empty.txt"]
    assert failed["missing.txt"].endswith("No such file or directory")
    assert "can't be read here" in failed["docs/picture.png"]
    assert "3,000,000,000 bytes; at most 20,000,000" in failed["huge.pdf"]
    assert "neither a file nor a folder" in failed["pipe.txt"]
    assert "✓ docs/[red]markup[link=x].txt: added, red-markup-link-x (1 passage)" in lines
    assert any(line.startswith("✓ docs/bell[31m.txt: added") for line in lines)
    assert any(line.startswith("✓ docs/caf?.txt: added, caf ") for line in lines)
    assert "\x1b" not in ran.out

    listed = rapport("notes", "list")
    assert "\x1b" not in listed.out
    assert "[red]markup[link=x]" in listed.out


def test_without_a_file_there_is_nothing_to_add(rapport: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = rapport("notes", "add", "empty")
    assert (ran.code, ran.out) == (1, "There is no file to add (txt, md, html, pdf, docx).\n")


@pytest.mark.usefixtures("docs")
def test_notes_are_listed_shown_searched_and_deleted(rapport: Run) -> None:
    for command in (["list"], ["search", "anything"]):
        assert rapport("notes", *command).out == "There are no notes yet: `rapport notes add FILES…`\n"
    rapport("notes", "add", "docs")

    listed = rapport("notes", "list", COLUMNS="60").out.splitlines()
    assert listed[0].split() == ["id", "title", "characters", "passages", "changed"]
    assert [line.split()[0] for line in listed[1:]] == ["readme-2", "coffee", "readme"]
    assert re.search(rf"Parking +{len(PARKING) + 12} +1 +20\d\d-\d\d-\d\d \d\d:\d\d", listed[1])

    assert rapport("notes", "show", "readme").out.startswith(f"# Returns\n\n{REFUNDS}\n")
    missing = rapport("notes", "show", "nothing")
    assert (missing.code, missing.out, missing.err) == (1, "", "rapport: There is no note 'nothing'.\n")

    found = rapport("notes", "search", "How long can I return something I bought?", "--limit", "2")
    assert found.code == 0
    heads = [line for line in found.out.splitlines() if re.match(r"\S+  -?[01]\.\d{3}  ", line)]
    assert len(heads) == 2
    assert re.fullmatch(r"readme  0\.\d{3}  Returns", heads[0])
    assert REFUNDS in found.out
    assert re.search(r"best similarity is 0\.\d{3}[^:]*, the threshold 0\.\d{3}: enough for a strict agent", found.out)
    beside = rapport("notes", "search", "Which planet has the most moons?")
    assert ": not enough for a strict agent to answer." in beside.out
    assert rapport("notes", "search", "@bot ").out == "There is nothing to look for in this question.\n"

    deleted = rapport("notes", "delete", "readme", "nothing", "coffee")
    assert (deleted.code, deleted.out) == (1, "Deleted readme.\nDeleted coffee.\n")
    assert deleted.err == "There is no note 'nothing'.\n"
    assert [line.split()[0] for line in rapport("notes", "list").out.splitlines()[1:]] == ["readme-2"]


@pytest.mark.usefixtures("docs")
def test_every_user_has_notes_of_their_own(rapport: Run) -> None:
    rapport("notes", "add", "docs/coffee.TXT", "--user", "ana")
    assert rapport("notes", "list", "--user", "ben").out.startswith("There are no notes of ben yet")
    assert "There is no note 'coffee'" in rapport("notes", "show", "coffee").err
    assert rapport("notes", "show", "coffee", "--user", "ana").out == f"{COFFEE}\n"
    assert "There are no notes of ben yet" in rapport("notes", "search", "coffee", "--user", "ben").out


@pytest.mark.usefixtures("docs")
def test_notes_are_collected_and_shared(rapport: Run) -> None:
    nothing = rapport("notes", "collections")
    assert nothing.out == "No note is in a collection: `rapport notes collect ID… --collection NAME`\n"
    ran = rapport("notes", "add", "docs", "--collection", "Office", "--collection", "shop", "--share", "everyone")
    assert ran.out.splitlines()[-1] == "3 added."
    rapport("notes", "add", "docs/coffee.TXT", "--user", "ana")
    assert [line.split() for line in rapport("notes", "collections").out.splitlines()] == [
        *(["collection", "notes", "own"], ["office", "3", "3"], ["shop", "3", "3"]),
    ]
    collected = rapport("notes", "collect", "coffee", "readme", "--collection", "kitchen")
    assert collected.out.splitlines() == [
        "coffee: in kitchen; shared with everyone.",
        "readme: in kitchen; shared with everyone.",
    ]
    assert rapport("notes", "collect", "readme").out == "readme: in no collection; shared with everyone.\n"
    private = rapport("notes", "share", "readme", "nothing", "--with", "owner")
    assert (private.code, private.out) == (1, "readme: in no collection; shared with owner.\n")
    assert private.err == "There is no note 'nothing'.\n"

    listed = rapport("notes", "list", "--collection", "KITCHEN").out.splitlines()
    assert listed[0].split() == ["id", "title", "characters", "passages", "changed", "collections", "shared"]
    assert [line.split()[0] for line in listed[1:]] == ["coffee"]
    assert listed[1].split()[-3:] == ["kitchen", "with", "everyone"]
    none = rapport("notes", "list", "--collection", "nowhere", "--user", "ana")
    assert none.out == "There are no notes of ana in 'nowhere'.\n"

    # Another user sees what is shared, and their own note before one of the same id.
    hers = rapport("notes", "list", "--user", "ana").out.splitlines()[1:]
    assert [(line.split()[0], line.rstrip().endswith("by local")) for line in hers] == [
        *(("coffee", False), ("readme-2", True)),
    ]
    assert rapport("notes", "show", "readme-2", "--user", "ana").out.startswith("# Parking")
    assert "There is no note 'readme'" in rapport("notes", "show", "readme", "--user", "ana").err
    found = rapport("notes", "search", "Where do visitors park?", "--user", "ben").out
    assert found.startswith("readme-2  ")
    assert REFUNDS not in found
    for command in (("delete", "readme-2"), ("share", "readme-2", "--with", "owner"), ("collect", "readme-2")):
        assert "There is no note 'readme-2'" in rapport("notes", *command, "--user", "ana").err

    for arguments, field in (
        (("add", "docs", "--collection", "a b"), "`collections`"),
        (("add", "docs", "--share", "all"), "`shared_with`"),
        (("collect", "coffee", "--collection", "ä"), "`collections`"),
        (("share", "coffee", "--with", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"), "`shared_with`"),
        (("list", "--collection", "x" * 81), "`--collection`"),
    ):
        refused = rapport("notes", *arguments)
        assert refused.code == 1
        assert field in refused.err
        assert len(refused.err.splitlines()) == 1
    assert rapport("notes", "share", "coffee").code == 2


def doctor_says(ran: Ran, part: str) -> str:
    return next(line for line in ran.out.splitlines() if line[1:].startswith(f" {part}:"))


@pytest.mark.usefixtures("docs")
def test_a_change_of_embedders_is_noticed_and_mended(rapport: Run) -> None:
    before = rapport("doctor")
    assert doctor_says(before, "Notes").startswith("✓ Notes: none yet: `rapport notes add FILES…`")
    assert "the bundled one, minilm" in doctor_says(before, "Embedder")
    rapport("notes", "add", "docs")
    rapport("notes", "add", "docs/coffee.TXT", "--user", "ana")
    with_notes = rapport("doctor")
    assert (with_notes.code, doctor_says(with_notes, "Notes").split(" (")[0]) == (0, "✓ Notes: 4")

    other = {"RAPPORT_EMBEDDINGS": "wordllama"}
    changed = rapport("doctor", **other)
    assert changed.code == 1
    assert "4 of 4 were indexed by another embedder and are not found: `rapport reindex`" in changed.out
    assert re.search(r"wordllama.*256 dimensions", doctor_says(changed, "Embedder"))
    blind = rapport("notes", "search", "coffee machine", **other)
    assert blind.out == "No note is indexed by the embedder in use: `rapport reindex`\n"

    assert rapport("reindex", **other) == (0, "Indexed 4 notes anew.\n", "")
    assert rapport("reindex", **other) == (0, "Every note is indexed already.\n", "")
    mended = rapport("doctor", **other)
    assert (mended.code, doctor_says(mended, "Notes").split(" (")[0]) == (0, "✓ Notes: 4")
    assert rapport("notes", "search", "coffee machine", **other).out.startswith("coffee  0.")


@pytest.mark.usefixtures("docs")
def test_a_curve_that_cannot_be_drawn_costs_no_measurement(rapport: Run, docs: Path, tmp_path: Path) -> None:
    for number, text in enumerate((REFUNDS, PARKING, COFFEE) * 2):
        (docs / f"{number}.txt").write_text(f"{text} This is office number {number}.")
    rapport("notes", "add", "docs")
    drawn = rapport("calibrate", "--dry-run", "--png", "curve.png")
    assert drawn.out.splitlines()[-1] == "The curve is drawn in curve.png."
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    not_drawn = rapport("calibrate", "--dry-run", "--png", "missing/curve.png")
    assert (not_drawn.code, not_drawn.err) == (0, "")
    assert not_drawn.out.splitlines()[-1] == "The curve can't be drawn in missing/curve.png: No such file or directory."
    assert not_drawn.out.splitlines()[:-1] == drawn.out.splitlines()[:-1]


def test_an_unknown_embedder_is_reported_in_one_line(rapport: Run) -> None:
    for command in (["notes", "add", "docs"], ["notes", "search", "coffee"], ["reindex"]):
        ran = rapport(*command, RAPPORT_EMBEDDINGS="nonsense")
        assert (ran.code, ran.out) == (1, "")
        assert re.fullmatch(r"rapport: RAPPORT_EMBEDDINGS='nonsense' is not an embedder\..*\n", ran.err)


def test_a_terminal_shows_how_far_it_is(home: Home, database_url: str, docs: Path) -> None:
    (docs / "long.txt").write_text("\n\n".join(f"Paragraph {number}. {COFFEE}" for number in range(300)))
    shown = on_a_terminal(home, database_url, "notes", "add", "docs")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"files .*[1-3]/4", text)
    seen = re.search(r"long\.txt .*?(\d+)/(\d+)", text)
    assert seen is not None
    assert int(seen[1]) < int(seen[2])
    assert "4 added." in text

"""Test the files of the page: served unchanged, under a strict content policy, and part of the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rapport.channels.http.routes.page import page_routes, read_page
from rapport.domain.errors import Permanent
from tests.support.cases import every_case
from tests.support.world import World

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "src" / "rapport" / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def files() -> list[str]:
    return sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.suffix in KINDS)


async def test_every_file_is_served_under_the_policy(world: World) -> None:
    names = files()
    assert "index.html" in names
    for name in names:
        answer = await world.http.get(f"/page/{name}")
        assert answer.status_code == 200, name
        assert answer.content == (FOLDER / name).read_bytes()
        assert answer.headers["content-type"].partition(";")[0] == KINDS[Path(name).suffix]
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-cache"
    start = await world.http.get("/")
    assert start.content == (FOLDER / "index.html").read_bytes()
    assert start.headers["content-security-policy"] == POLICY


async def test_a_browser_that_has_a_file_is_told_so(world: World) -> None:
    first = await world.http.get("/")
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await world.http.get("/", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag), known
        assert again.headers["content-security-policy"] == POLICY
    other = await world.http.get("/", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


async def test_nothing_else_can_be_reached(world: World) -> None:
    for name in (
        "",
        "nothing.js",
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/settings.py",
        "..%5capp.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "index.html/",
        "index.html%00",
        "INDEX.HTML",
        "./index.html/../../app.py",
    ):
        answer = await world.http.get(f"/page/{name}")
        assert answer.status_code == 404, name
        assert answer.headers["content-type"] == "application/problem+json"


async def test_the_page_needs_no_key(world: World) -> None:
    """Or nobody could sign in."""
    for headers in ({"Host": "chat.example"}, {"Authorization": "Bearer wrong"}):
        assert (await world.http.get("/", headers=headers)).status_code == 200


def test_only_page_files_of_the_folder_are_served(tmp_path: Path) -> None:
    (tmp_path / "panels").mkdir()
    for name in ("index.html", "panels/notes.js", "README.md", "secret.py", ".env", "no-suffix"):
        (tmp_path / name).write_text(name)
    found = read_page(tmp_path)
    assert sorted(found) == ["index.html", "panels/notes.js"]
    assert found["index.html"].tag != found["panels/notes.js"].tag
    with pytest.raises(Permanent, match="page is missing"):
        page_routes(read_page(tmp_path / "nowhere"))


@every_case("name", files())
def test_a_file_asks_for_nothing_that_the_policy_forbids(name: str) -> None:
    text = (FOLDER / name).read_text()
    if name.endswith(".html"):
        assert re.search(r"<script(?![^>]*\bsrc=)", text) is None
        assert re.search(r"<style|\bstyle=|\bon\w+=|javascript:", text) is None
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)
    if name.endswith(".js"):
        assert re.search(r"\beval\(|new Function\(|document\.write\(|(?:from|import\()\s*[\"']https?:", text) is None
    if name.endswith(".css"):
        assert re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", text) is None


def test_the_page_and_the_samples_are_in_the_wheel(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    [wheel] = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {f"rapport/page/{name}" for name in files()} <= packed
    notes = (ROOT / "src" / "rapport" / "samples" / "notes").glob("*.md")
    assert {"rapport/samples/chat.json", *(f"rapport/samples/notes/{note.name}" for note in notes)} <= packed

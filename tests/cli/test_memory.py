"""Test `rapport memory`, and `reindex` for memories, with the real commands."""

from __future__ import annotations

import asyncio
import re

import pytest

from rapport.domain.ids import is_id
from tests.support.commands import Home, Ran, Run
from tests.support.listening import listening
from tests.support.world import World

pytestmark = pytest.mark.e2e

TEA, CAT = "I like green tea.", "My cat is called Rex."
NOTHING = "companion remembers nothing about you yet: `rapport memory add TEXT`\n"


def added(ran: Ran) -> str:
    """The id of what was remembered."""
    assert (ran.code, ran.err) == (0, "")
    told = re.fullmatch(r"Remembered as (\S+)\.\n", ran.out)
    assert told is not None
    assert is_id(told[1])
    return told[1]


def test_memories_are_added_listed_searched_edited_and_forgotten(rapport: Run) -> None:
    for command in (["list"], ["search", "anything"]):
        assert rapport("memory", *command).out == NOTHING
    tea = added(rapport("memory", "add", TEA, "--key", "drink"))
    cat = added(rapport("memory", "add", CAT))

    listed = rapport("memory", "list").out.splitlines()
    assert listed[0].split() == ["id", "memory", "key", "from", "changed"]
    assert re.fullmatch(rf"\s*{cat} +{re.escape(CAT)} +by hand +20\d\d-\d\d-\d\d \d\d:\d\d\s*", listed[1])
    assert re.search(rf"{tea} +{re.escape(TEA)} +drink +by hand", listed[2])

    found = rapport("memory", "search", "What is my pet's name?", "--limit", "1").out
    assert re.fullmatch(rf"{cat}  0\.\d{{3}}  {re.escape(CAT)}  by hand\n", found)

    same = rapport("memory", "add", "I like green tea")
    assert (same.code, same.out) == (1, "")
    assert same.err == f"rapport: The memory {tea} says the same already: edit that one.\n"
    assert rapport("memory", "edit", tea, "I drink coffee.").out == f"Changed {tea}.\n"
    assert rapport("memory", "edit", tea, "--key", "").code == 0
    assert re.search(rf"{tea} +I drink coffee\. +by hand", rapport("memory", "list").out)
    assert "nothing to change" in rapport("memory", "edit", tea).err

    told = rapport("memory", "stats").out.splitlines()
    assert told[0] == "2 of 1,000 places are taken (0%)."
    assert told[1] == "2 by hand, 0 by the agent, 0 from what was said."

    forgot = rapport("memory", "forget", tea, "nothing", cat)
    assert (forgot.code, forgot.out) == (1, f"Forgot {tea}.\nForgot {cat}.\n")
    assert forgot.err == "There is no memory 'nothing'.\n"
    assert rapport("memory", "list").out == NOTHING


async def test_who_watches_is_told_what_a_command_changes(rapport: Run, world: World) -> None:
    thread = await world.conversation()
    async with listening(world.http, thread) as page:
        tea = added(await asyncio.to_thread(rapport, "memory", "add", TEA))
        await page.until(lambda: page.named("memory.created"))
        assert page.named("memory.created")[0]["content"] == TEA
        await asyncio.to_thread(rapport, "memory", "edit", tea, "I drink coffee.")
        await page.until(lambda: page.named("memory.updated"))
        cat = added(await asyncio.to_thread(rapport, "memory", "add", CAT))
        await asyncio.to_thread(rapport, "memory", "forget", tea)
        await asyncio.to_thread(rapport, "memory", "forget", "--all", "--yes")
        await page.until(lambda: len(page.named("memory.deleted")) == 2)
        assert page.named("memory.deleted") == [{"id": tea}, {"id": cat}]


def test_everything_is_forgotten_only_when_asked_twice(rapport: Run, home: Home, database_url: str) -> None:
    added(rapport("memory", "add", TEA))
    added(rapport("memory", "add", TEA, "--user", "ana"))
    added(rapport("memory", "add", TEA, "--agent", "librarian"))
    assert rapport("memory", "forget").err == "rapport: Name the memories to forget, or say --all.\n"
    assert rapport("memory", "forget", "x", "--all").code == 1
    for answer in ("", "n\n"):
        kept = home.run("memory", "forget", "--all", stdin=answer, DATABASE_URL=database_url)
        assert kept.code == 1
        assert "Forget everything that companion remembers about local?" in kept.out
    assert TEA in rapport("memory", "list").out
    said = home.run("memory", "forget", "--all", stdin="y\n", DATABASE_URL=database_url)
    assert said.code == 0
    assert said.out.endswith("Forgot 1 memory.\n")
    assert rapport("memory", "list").out == NOTHING
    assert TEA in rapport("memory", "list", "--user", "ana").out
    assert rapport("memory", "forget", "--all", "--yes", "--agent", "librarian").out == "Forgot 1 memory.\n"
    assert rapport("memory", "forget", "--all", "--yes").out == "Forgot 0 memories.\n"
    assert TEA in rapport("memory", "list", "--user", "ana").out


def test_users_and_agents_are_kept_apart(rapport: Run) -> None:
    tea = added(rapport("memory", "add", TEA, "--user", "ana"))
    assert rapport("memory", "search", "tea", "--user", "ben").out.startswith(
        "companion remembers nothing about ben yet"
    )
    assert rapport("memory", "edit", tea, "Mine.").err == f"rapport: There is no memory '{tea}'.\n"
    assert rapport("memory", "forget", tea, "--user", "ana", "--agent", "librarian").code == 1
    assert rapport("memory", "stats", "--user", "ana").out.startswith("1 of 1,000")
    for command in (["list"], ["add", TEA], ["search", "x"], ["forget", "x"], ["stats"], ["edit", "x", "y"]):
        ran = rapport("memory", *command, "--agent", "nobody")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == "rapport: There is no agent 'nobody'; there are companion, librarian.\n"


def test_a_terminal_shows_hostile_text_and_does_not_obey_it(rapport: Run) -> None:
    hostile = "[red]Markup[/nonsense] \x1b[31m\x07 \u202eevil\nand a line"
    added(rapport("memory", "add", hostile, "--key", "[bold]\x1b[1m"))
    for ran in (rapport("memory", "list"), rapport("memory", "search", "markup")):
        assert ran.code == 0
        assert not set("\x1b\x07\u202e") & set(ran.out)
        assert "[red]Markup[/nonsense] [31m evil and a line" in ran.out
    for text in ("", " ", "x" * 8193):
        ran = rapport("memory", "add", text)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("rapport: ")


def test_a_change_of_embedders_is_noticed_and_mended(rapport: Run) -> None:
    tea = added(rapport("memory", "add", TEA))
    added(rapport("memory", "add", CAT, "--user", "ana", "--agent", "librarian"))
    other = {"RAPPORT_EMBEDDINGS": "wordllama"}
    blind = rapport("memory", "search", "green tea", **other)
    assert blind.out == "Nothing is indexed by the embedder in use: `rapport reindex`\n"
    assert rapport("reindex", **other) == (0, "Indexed 2 memories anew.\n", "")
    assert rapport("reindex", **other) == (0, "Every note is indexed already.\n", "")
    assert rapport("memory", "search", "green tea", **other).out.startswith(f"{tea}  0.")
    # Erasing needs no embedder, not even one that exists.
    wrong = {"RAPPORT_EMBEDDINGS": "nonsense"}
    assert "is not an embedder" in rapport("memory", "add", CAT, **wrong).err
    assert TEA in rapport("memory", "list", **wrong).out
    assert rapport("memory", "forget", tea, **wrong).out == f"Forgot {tea}.\n"

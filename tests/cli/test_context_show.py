"""Test `rapport context show`: the real command, on a terminal and in a pipe, for replies and other messages."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rapport.domain.ids import new_id
from tests.support.commands import Home, Ran, Run, on_a_terminal
from tests.support.world import World

pytestmark = pytest.mark.e2e

NOW = datetime.now(UTC).replace(microsecond=0)
ANA, BEN, CLEO = ({"id": name.lower(), "name": name} for name in ("Ana", "Ben", "Cleo"))
CHALLENGE: list[tuple[str, str, timedelta]] = [
    ("Ana", "We should look at the restaurant for the gathering", timedelta(days=3)),
    ("Ben", "Any thoughts?", timedelta(days=2)),
    ("Cleo", "The thai restaurant on 10th Ave?", timedelta(minutes=10)),
    ("Ana", "@bot", timedelta(minutes=1)),
]


@pytest.fixture
def gathering(rapport: Run, tmp_path: Path) -> dict[str, str]:
    """Create a group with a call that was not answered; return the ids of its messages by their text."""
    rows = [
        {"id": number, "author": who, "text": text, "created_at": (NOW - ago).isoformat(), "conversation": "gathering"}
        for number, (who, text, ago) in enumerate(CHALLENGE)
    ]
    (tmp_path / "gathering.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    imported = rapport("import", "--format", "jsonl", "gathering.jsonl", "--title", "Gathering")
    assert imported.code == 0, imported
    found = re.search(r"into (\w{26})", imported.out)
    assert found is not None
    exported = rapport("export", found[1]).out.splitlines()
    return {"": found[1]} | {row["text"]: row["id"] for row in map(json.loads, exported)}


async def group(world: World) -> tuple[str, dict[str, Any]]:
    """Create a group in which the agent has just replied about cats; return its id and the reply."""
    place = await world.conversation(kind="group", title="Pets [bold]\x1b[31m")
    await world.post(place, "Our cat [bold]ate[/bold] \x1b]0;owned\x07the curtains", author=ANA)
    await world.post(place, "Cats do that", author=BEN)
    world.model.will_say("Curtains are [red]for\x1b[2J climbing.\n\nMine says so, too.")
    return place, await world.says(place, "@bot what do you think?", author=ANA)


async def run(rapport: Run, *arguments: str, **environment: str) -> Ran:
    """Run the command while a world's server runs."""
    return await asyncio.to_thread(rapport, *arguments, **environment)


async def test_a_reply_says_what_it_was_made_from(world: World, rapport: Run) -> None:
    place, reply = await group(world)
    shown = await run(rapport, "context", "show", reply["id"])
    assert (shown.code, shown.err) == (0, "")
    assert not {"\x1b", "\x07"} & set(shown.out)
    lines = shown.out.splitlines()
    assert lines[0] == f"Pets [bold][31m  group, with Companion  {place}"
    assert lines[1].startswith("relevant (message by message): 2 earlier messages for the call on ")
    assert lines[1].endswith(", as the reply was given")
    marks = [line[1] for line in lines if re.match(r" [●·▶◀] \d\d:\d\d  ", line)]
    assert marks == ["●", "●", "▶", "◀"]
    assert re.search(
        r"^ ● \d\d:\d\d  Ana  Our cat \[bold\]ate\[/bold\] \]0;ownedthe curtains$", shown.out, re.MULTILINE
    )
    assert re.search(r"^ +[▰▱]{10} \d\.\d\d \w+", shown.out, re.MULTILINE)
    assert re.search(r"^ ◀ .*◆ Companion  Curtains are \[red\]for\[2J climbing\. Mine says so, too\.$", shown.out, re.M)

    history = await world.history(place)
    call = next(one["id"] for one in history if one["content"] == "@bot what do you think?")
    for name in (call, call.lower(), reply["id"][:20]):
        assert (await run(rapport, "context", "show", name)).out == shown.out
    within = await run(rapport, "context", "show", reply["id"][:20], "--conversation", place[:20].lower())
    assert within.out == shown.out


async def test_a_terminal_is_shown_colours_and_obeys_nobody(world: World, home: Home, database_url: str) -> None:
    _, reply = await group(world)
    shown = await asyncio.to_thread(on_a_terminal, home, database_url, "context", "show", reply["id"])
    assert "\x1b[1;32m●\x1b[0m" in shown
    assert "\x1b[1;35m◆ Companion\x1b[0m" in shown
    for evil in ("\x1b]0;", "\x07", "\x1b[2J"):
        assert evil not in shown


async def test_for_programs_it_is_what_the_route_answers(world: World, rapport: Run) -> None:
    place, reply = await group(world)
    for arguments, query in (([], {}), (["--strategy", "recent"], {"strategy": "recent"})):
        told = json.loads((await run(rapport, "context", "show", reply["id"], "--json", *arguments)).out)
        route = await world.http.get(f"/api/threads/{place}/context", params={"message_id": reply["id"], **query})
        assert route.status_code == 200
        assert told == {"conversation_id": place, **route.json()}


async def test_what_was_said_before_the_agent_came_is_brought_along(world: World, rapport: Run) -> None:
    place = await world.conversation(kind="group")
    snapshot = {"text": "Is the pool open\x1b[2J?", "author": {"id": "zoe", "name": "Zoe"}}
    world.model.will_say("It is.")
    reply = await world.says(place, "@bot ^", author=ANA, context_snapshot=snapshot)
    shown = (await run(rapport, "context", "show", reply["id"])).out
    assert re.search(r'^It is about Zoe, .*: "Is the pool open\[2J\?"$', shown, re.MULTILINE)
    assert re.search(r"^ ● \d\d:\d\d  Zoe  Is the pool open", shown, re.MULTILINE)
    assert "Ana ↩ something older  @bot ^" in shown


async def test_what_was_said_unasked_and_in_a_direct_chat_is_explained_too(world: World, rapport: Run) -> None:
    place = await world.conversation()
    first = await world.says(place, "I am off to the dentist")
    shown = (await run(rapport, "context", "show", first["id"])).out
    assert "A direct chat  direct, with Companion" in shown
    assert "recent (the latest messages): 0 earlier messages for the call on" in shown
    await world.silence(place)
    unasked = (await world.history(place))[-1]
    assert unasked["autonomous"]
    shown = (await run(rapport, "context", "show", unasked["id"])).out
    assert "2 earlier messages for what was said unasked on" in shown
    assert " ▶ " not in shown
    assert re.search(r"^ ● .*I am off to the dentist$", shown, re.MULTILINE)
    assert re.search(r"^ ◀ .*How is it going\?$", shown, re.MULTILINE)


def test_scenario_a_as_a_timeline(rapport: Run, gathering: dict[str, str]) -> None:
    shown = rapport("context", "show", gathering["@bot"], "--strategy", "time_gap")
    assert (shown.code, shown.err) == (0, "")
    assert "time_gap (everything since the last long silence): 1 earlier message for the call on " in shown.out
    assert "as it would be chosen now" in shown.out
    assert "The thai restaurant" in shown.out
    assert "Any thoughts?" not in shown.out  # older than the oldest chosen one

    everything = rapport("context", "show", gathering["@bot"], "--strategy", "recent").out
    assert "── one day ──" in everything
    assert "── two days ──" in everything
    assert everything.count(" ● ") == 3


def test_any_message_of_a_group_can_be_asked_about(rapport: Run, gathering: dict[str, str]) -> None:
    shown = rapport("context", "show", gathering["Any thoughts?"], "--strategy", "recent").out
    assert re.search(r"^ ● .*We should look at the restaurant", shown, re.MULTILINE)
    assert re.search(r"^ ▶ \d\d:\d\d  Ben  Any thoughts\?$", shown, re.MULTILINE)
    assert "thai" not in shown


def test_what_is_not_there_is_said_in_one_line(rapport: Run, gathering: dict[str, str]) -> None:
    call = gathering["@bot"]
    wrong: list[tuple[list[str], str]] = [
        ([new_id()], "The user 'local' has no message"),
        (["nonsense\x1b[31m"], "There is no message"),
        (["7ZZZZZZZZ"], "has no message '7ZZZZZZZZ'; `--user` names another user."),
        ([call[:5]], "at least 8 characters"),
        ([call, "--user", "somebody"], "The user 'somebody' has no message"),
        ([call, "--conversation", "nowhere!"], "There is no conversation"),
    ]
    for arguments, reason in wrong:
        ran = rapport("context", "show", *arguments)
        assert (ran.code, ran.out) == (1, ""), arguments
        assert ran.err.startswith("rapport: ")
        assert reason in ran.err
        assert "\x1b" not in ran.err


def test_a_beginning_that_several_messages_have_is_not_enough(rapport: Run, tmp_path: Path) -> None:
    rows = [
        {"id": number, "author": f"A{number}", "text": "words", "created_at": NOW.timestamp() - 60} for number in (1, 2)
    ]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    imported = rapport("import", "--format", "jsonl", "chat.jsonl")
    found = re.search(r"into (\w{26})", imported.out)
    assert found is not None
    first = json.loads(rapport("export", found[1]).out.splitlines()[0])["id"]
    ran = rapport("context", "show", first[:9])
    assert (ran.code, ran.out) == (1, "")
    assert f"Several messages begin with '{first[:9]}': give more of the id." in ran.err


# ---- search


@pytest.mark.e2e
def test_a_conversation_is_searched_from_the_command_line(rapport: Run, gathering: dict[str, str]) -> None:
    place = gathering[""]
    shown = rapport("context", "search", place[:20].lower(), "which restaurant for the gathering?")
    assert shown.code == 0, shown
    assert "We should look at the restaurant for the gathering" in shown.out.splitlines()[0]
    told = json.loads(rapport("context", "search", place, "restaurant", "--limit", "1", "--json").out)
    assert told["conversation_id"] == place
    assert len(told["messages"]) == 1
    assert "There is no conversation" in rapport("context", "search", "01NOSUCH", "restaurant").err
    assert "needs at least one word" in rapport("context", "search", place, "...").err

"""Test that a command with `--user` shows and changes nothing of another user: a table of all such commands (SEC)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from rapport.cli.main import app
from tests.channels.http.test_isolation import SECRET, VICTIM, ZONE, Scene, make_person
from tests.support.commands import Run
from tests.support.world import World

pytestmark = pytest.mark.e2e


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a command. `{name}` is an object of the victim."""

    arguments: Sequence[str] = ()
    shows: bool = False
    """With the victim's own id the command prints data of the victim, so the check can fail."""


# Every command with `--user`. A new one needs an entry here.
CALLS: dict[str, Call] = {
    "agents copy": Call(["{own_agent}", "twin"]),
    "agents create": Call(["--name", "Poet", "--persona", "You are a poet."]),
    "agents edit": Call(["{own_agent}", "--set", "greeting=Hi"]),
    "agents export": Call(["{own_agent}"], shows=True),
    "agents import": Call(["poet.yaml"]),
    "agents list": Call(),
    "agents reset": Call(["companion"]),
    "agents restore": Call(["{own_agent}", "1"]),
    "agents show": Call(["{own_agent}"], shows=True),
    "agents versions": Call(["{own_agent}"]),
    "agents delete": Call(["{own_agent}", "--yes"]),
    "calibrate": Call(["--dry-run"]),
    "chat": Call(["--continue"]),
    "context search": Call(["{thread_id}", SECRET], shows=True),
    "context show": Call(["{message_id}"], shows=True),
    "export": Call(["{thread_id}"], shows=True),
    "import": Call(["more.jsonl", "--format", "jsonl", "--conversation", "{thread_id}"]),
    "keys create": Call(["phone"]),
    "mcp": Call(),
    "memory add": Call(["I collect stamps."]),
    "memory edit": Call(["{memory_id}", "I collect coins."]),
    "memory forget": Call(["{memory_id}"]),
    "memory list": Call(shows=True),
    "memory search": Call([SECRET], shows=True),
    "memory stats": Call(),
    "notes add": Call(["trains.txt"]),
    "notes delete": Call(["{note_id}"]),
    "notes collect": Call(["{note_id}", "--collection", "animals"]),
    "notes collections": Call(),
    "notes share": Call(["{note_id}", "--with", "owner"]),
    "notes list": Call(shows=True),
    "notes search": Call([SECRET], shows=True),
    "notes show": Call(["{note_id}"], shows=True),
    "reminders add": Call(["{thread_id}", "Feed the cat.", "--in", "2h"]),
    "reminders cancel": Call(["{reminder_id}"]),
    "reminders export": Call(shows=True),
    "reminders list": Call(shows=True),
    "reminders skip": Call(["{reminder_id}"]),
    "reminders snooze": Call(["{reminder_id}", "2h"]),
    "timers cancel": Call(["{thread_id}", "{timer_id}"]),
    "timers list": Call(shows=True),
    "timers mute": Call(["{thread_id}"]),
    "timers off": Call(["{thread_id}"]),
    "timers on": Call(["{thread_id}"]),
    "timers postpone": Call(["{thread_id}", "{timer_id}", "2h"]),
    "timers quiet": Call(["22:00", "08:00"]),
    "timers set": Call(["{thread_id}", "check_in", "2h"]),
    "timers stats": Call(),
    "timers unmute": Call(["{thread_id}"]),
    "usage": Call(),
    "usage budget": Call(["1000000"]),
}


def commands_with_user(command: Any, name: str = "") -> Iterator[str]:
    """Yield the name of every command that has the option."""
    for inner_name, inner in getattr(command, "commands", {}).items():
        yield from commands_with_user(inner, f"{name} {inner_name}".strip())
    if any("--user" in getattr(one, "opts", ()) for one in command.params):
        yield name


def test_every_command_with_a_user_is_in_the_table() -> None:
    assert sorted(commands_with_user(typer.main.get_command(app))) == sorted(CALLS)


async def test_the_id_of_one_user_shows_and_changes_nothing_of_another(
    world: World, rapport: Run, tmp_path: Path
) -> None:
    victim = await make_person(world, VICTIM, "user", word=SECRET, zone=ZONE)
    await world.drain()
    scene = Scene(world, victim, [])
    before = await scene.rows_of_the_victim()
    (tmp_path / "trains.txt").write_text("The night train to Lisbon leaves at nine.")
    (tmp_path / "poet.yaml").write_text("id: poet\nname: Poet\npersona: You are a poet.\nhandles: [poet]\n")
    row = {"id": 1, "author": "Ben", "text": "Hello", "created_at": "2026-01-01T10:00:00Z", "conversation": "chat"}
    (tmp_path / "more.jsonl").write_text(json.dumps(row) + "\n")

    async def run(name: str, call: Call, user: str) -> str:
        arguments = [argument.format(**victim.objects) for argument in call.arguments]
        ran = await asyncio.to_thread(rapport, *name.split(), *arguments, "--user", user)
        assert ran.code in (0, 1, 2), (name, ran)
        assert ran.code == 0 or user != VICTIM, (name, ran)
        told = ran.out + ran.err
        for argument in arguments if user != VICTIM else ():
            told = told.replace(argument, "")
        return told

    for name, call in CALLS.items():
        told = await run(name, call, "ben")
        assert [mark for mark in victim.marks if mark in told] == [], (name, told)
    assert await scene.rows_of_the_victim() == before
    for name, call in CALLS.items():
        if call.shows:
            told = await run(name, call, VICTIM)
            assert [mark for mark in victim.marks if mark in told] != [], (name, told)

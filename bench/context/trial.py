"""Try the agent in a group of five people over two days, with twelve calls, on the real server.

    python -m bench.context.trial                     the built-in model
    python -m bench.context.trial --scripted          a scripted model that answers short, long, wrong and off topic

The clock of the server and of its Postgres is moved from message to message (libfaketime). The output is the transcript,
with the messages that were selected for each call, the share of the relevant messages, and the other messages.
The exit code is 1 when a relevant message is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
from tests.e2e.clocks import MovedClock
from tests.e2e.harness import Home, make_home
from tests.e2e.scripted import scripted_model

from bench.context.trial_chat import ANSWERS, CHAT, Said

BEGIN = datetime(2026, 11, 13, 17, 0, tzinfo=UTC)


@dataclass(slots=True)
class Outcome:
    """Count the selected messages over all calls."""

    meant: int = 0
    found: int = 0
    others: int = 0
    missing: list[str] = field(default_factory=list[str])


async def main(*, scripted: bool) -> int:
    """Run the chat and print it; return the exit code."""
    async with scripted_model() as model:
        home = make_home(model)
        clock = MovedClock(home)
        clock.move_to(BEGIN)
        try:
            await clock.start_postgres()
            server = await home.serve(**({} if scripted else {"RAPPORT_MODEL": "builtin"}))
            model.answers.extend(ANSWERS)
            async with aiohttp.ClientSession(server.url) as http:
                outcome = await _hold(http, clock)
            _print_errors(home)
        finally:
            home.clean()
    print(
        f"\n{outcome.found} of {outcome.meant} messages that were meant are there; {outcome.others} others came along"
    )
    for line in outcome.missing:
        print(f"MISSING {line}")
    return 1 if outcome.missing else 0


async def _hold(http: aiohttp.ClientSession, clock: MovedClock) -> Outcome:
    async with http.post("/api/threads", json={"kind": "group", "title": "The five of us"}) as response:
        response.raise_for_status()
        chat: str = (await response.json())["id"]
    outcome, ids, labels = Outcome(), dict[str, str](), dict[str, str]()
    for number, said in enumerate(CHAT):
        at = BEGIN + timedelta(minutes=said.minute)
        clock.move_to(at)
        reply = await _say(http, chat, number, said, ids)
        ids[said.label], labels[reply["asked_id"]] = reply["asked_id"], said.label
        print(f"{at:%a %H:%M}  {said.label:>4}  {said.who}: {said.text}")
        if not said.is_call:
            continue
        answered = reply["id"]
        ids[f"{said.label}!"], labels[answered] = answered, f"{said.label}!"
        print(f"           {said.label + '!':>4}  AGENT: {reply['content']}")
        async with http.get(f"/api/threads/{chat}/context", params={"message_id": answered}) as response:
            response.raise_for_status()
            chosen: list[dict[str, Any]] = (await response.json())["messages"]
        _report(said, chosen, labels, outcome)
    return outcome


async def _say(http: aiohttp.ClientSession, chat: str, number: int, said: Said, ids: dict[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "content": said.text,
        "author": {"id": said.who.lower(), "name": said.who},
        "client_message_id": f"trial-{number}",
    }
    if said.reply_to:
        body["reply_to_id"] = ids[said.reply_to]
    async with http.post(f"/chat/conversations/{chat}/messages", json=body) as response:
        reply: dict[str, Any] = await response.json()
        expected = 200 if said.is_call else 202
        assert response.status == expected, f"{said.text!r}: {response.status} {reply}"
    return {**reply, "asked_id": reply["reply_to_id"] if said.is_call else reply["id"]}


def _report(said: Said, chosen: list[dict[str, Any]], labels: dict[str, str], outcome: Outcome) -> None:
    names = [labels[one["id"]] for one in chosen if labels.get(one["id"]) != said.label]
    missing = [label for label in said.meant if label not in names]
    talk = {label.rstrip("!") for label in said.meant}
    others = [
        name for name in names if name.rstrip("!") not in talk and not name.endswith("!") and name not in said.fine
    ]
    outcome.meant += len(said.meant)
    outcome.found += len(said.meant) - len(missing)
    outcome.others += len(others)
    if missing:
        outcome.missing.append(f"{said.label}: {' '.join(missing)}")
    print(
        f"                 chosen: {' '.join(names)}"
        + (f"   MISSING: {' '.join(missing)}" if missing else "")
        + (f"   others: {' '.join(others)}" if others else "")
    )


def _print_errors(home: Home) -> None:
    for server in home.servers:
        for line in server.errors():
            print(f"ERROR {line}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripted", action="store_true", help="use the scripted model")
    sys.exit(asyncio.run(main(scripted=parser.parse_args().scripted)))

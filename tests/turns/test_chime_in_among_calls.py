"""Test a call in a group with earlier calls: what the real server gives its model (ADR 31)."""

from __future__ import annotations

import re

from tests.context.cast import Chat, chats
from tests.support.cases import every_case
from tests.support.world import World

PLAYED = [
    "dinner, summarise after two calls",
    "dinner, four earlier calls by everybody, Italian or Indian",
    "dinner, somebody who only ever calls the agent",
    "dinner, three worded calls with nothing of the chat in their words",
    "dinner over three days, the last silence is long",
    "two talks, the asker's own is meant although the other one called last",
    "two talks, a worded call names the other one",
    "a reply to the agent's answer, hours later",
    "a reply to an earlier bare call",
    "one person calls five times in a row, then asks for the talk",
    "the agent's long answers do not push people out",
]


async def play(world: World, chat: Chat) -> tuple[str, list[str]]:
    """Say everything but the new call in a group, at its time; returns the group and the ids, line by line."""
    group = await world.conversation(kind="group")
    ids: list[str] = []
    names: dict[str, str] = {}
    for line, following in zip(chat.lines, chat.lines[1:], strict=False):
        if line.mark == "<":
            continue
        answers = [following.text] if line.mark == "@" else []
        world.model.will_say(*answers)
        author = {"id": line.who.lower(), "name": line.who}
        reply = {"reply_to_id": names[line.replies_to]} if line.replies_to else {}
        response = await world.post(group, line.text, author=author, **reply)
        assert response.status_code == (200 if answers else 202), response.text
        known = [one["id"] for one in await world.history(group)]
        assert len(known) == len(ids) + 1 + len(answers)
        for said, id_ in zip((line, following), known[len(ids) :], strict=False):
            if said.name:
                names[said.name] = id_
        ids = known
    for id_, line in zip(ids, chat.lines, strict=False):
        await world.sql(
            "UPDATE messages SET created_at = created_at - %s * interval '1 minute' WHERE id = %s", line.minutes, id_
        )
    return group, ids


@every_case("title", PLAYED)
async def test_the_model_is_given_the_talk_that_is_meant(world: World, title: str) -> None:
    chat = next(one for one in chats() if one.title == title)
    group, ids = await play(world, chat)
    call = chat.call
    replied = next(
        (ids[number] for number, one in enumerate(chat.lines) if one.name and one.name == call.replies_to), None
    )
    reply = await world.says(
        group,
        call.text,
        author={"id": call.who.lower(), "name": call.who},
        **({"reply_to_id": replied} if replied else {}),
    )
    before = "\n".join(message.text for message in world.model.calls[-1][1:-1])
    given = [line for line in chat.lines[:-1] if re.search(rf"\] {re.escape(line.text[:300])}", before)]
    assert [line.text for line in chat.lines if line.mark == "*" and line not in given] == []
    others = [line for line in chat.lines if line.mark == "-"]
    assert len([line for line in others if line in given]) <= (len(others) + 1) // 2

    response = await world.http.get(f"/api/threads/{group}/context", params={"message_id": reply["id"]})
    assert response.status_code == 200, response.text
    chosen = {one["id"] for one in response.json()["messages"]}
    assert {id_ for id_, line in zip(ids, chat.lines, strict=False) if line.mark == "*"} <= chosen
    # What would be chosen now is what was: the explanation loads the chat by itself.
    again = await world.http.get(
        f"/api/threads/{group}/context", params={"message_id": reply["id"], "strategy": "relevant"}
    )
    assert {one["id"] for one in again.json()["messages"]} == chosen

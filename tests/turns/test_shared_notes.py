"""Test shared notes and collections over every way to an answer: who finds and cites what, and from when on (RAG, SEC)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.channels.http.test_auth import make_key, until_closed
from tests.channels.http.test_websocket import calling
from tests.support.world import World

GUARD = "I don't have sufficiently relevant documents to answer confidently. Please add more context or documents."
SAFE = "The safe behind the painting opens with 31-41-59."
WHICH_CODE = "What opens the safe behind the painting?"
REFUNDS = "Customers may send goods back within 30 days of purchase and get their money back."
HOW_LONG = "How long can I return something I bought?"
WHICH_NOTES = "What documents do you have?"

Headers = Mapping[str, str]


@dataclass
class People:
    """The operator, and two users who have keys of their own."""

    world: World
    operator: Headers
    ana: Headers
    ben: Headers

    async def note(self, headers: Headers, note_id: str, text: str, **settings: Any) -> None:
        added = await self.world.http.post(
            "/api/notes", json={"id": note_id, "text": text, **settings}, headers=headers
        )
        assert added.status_code == 201, added.text

    async def change(self, headers: Headers, note_id: str, **settings: Any) -> None:
        changed = await self.world.http.patch(f"/api/notes/{note_id}", json=settings, headers=headers)
        assert changed.status_code == 200, changed.text

    async def talk(self, headers: Headers, *, kind: str = "direct", agent: str = "librarian") -> str:
        body = {"agent": agent, "kind": kind}
        return (await self.world.http.post("/chat/conversations", json=body, headers=headers)).json()["id"]

    async def ask(self, headers: Headers, where: str, question: str) -> dict[str, Any]:
        answer = await self.world.http.post(
            f"/chat/conversations/{where}/messages", json={"content": question}, headers=headers
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def cites(self, headers: Headers, where: str, question: str, note_id: str) -> str:
        """Ask, let the model cite a note, and return the text that the citation points at; "" if it was removed."""
        self.world.model.will_say(f"So it is [source: {note_id}].")
        reply = await self.ask(headers, where, question)
        if reply["content"] == GUARD:
            await self.unsay()
            return ""
        [source] = reply["sources"] or [{"text": ""}]
        return source["text"]

    async def unsay(self) -> None:
        """Take back the scripted answer: no model was asked."""
        where = await self.talk(self.operator, agent="companion")
        await self.ask(self.operator, where, "hello")


@pytest.fixture
async def people(world: World) -> People:
    keys = [await make_key(world, user) for user in ("local", "ana", "ben")]
    await until_closed(world)
    return People(world, *(headers for _, headers in keys))


async def limit_to_collections(people: People, agent_id: str, *names: str) -> None:
    changed = await people.world.http.patch(
        f"/api/agents/{agent_id}", json={"collections": list(names)}, headers=people.operator
    )
    assert changed.status_code == 200, changed.text


async def test_everybody_cites_what_is_shared_with_everyone_until_it_is_not(people: People) -> None:
    await people.note(people.operator, "safe", SAFE, shared_with="everyone")
    for headers in (people.ana, people.ben, people.operator):
        where = await people.talk(headers)
        assert await people.cites(headers, where, WHICH_CODE, "safe") == SAFE
    where = await people.talk(people.ana)
    assert await people.cites(people.ana, where, WHICH_CODE, "safe") == SAFE
    await people.change(people.operator, "safe", shared_with="owner")
    assert (await people.ask(people.ana, where, WHICH_CODE))["content"] == GUARD
    assert await people.cites(people.operator, await people.talk(people.operator), WHICH_CODE, "safe") == SAFE


async def test_a_note_of_a_group_is_for_its_members_and_goes_with_it(people: People) -> None:
    """The group is Ana's; the operator shares with it, as with the group of a chat that has nobody's key."""
    group, elsewhere = await people.talk(people.ana, kind="group"), await people.talk(people.ana, kind="group")
    direct, foreign = await people.talk(people.ana), await people.talk(people.ben, kind="group")
    await people.note(people.operator, "safe", SAFE, shared_with=group)
    called = f"@bot {WHICH_CODE}"
    assert await people.cites(people.ana, group, called, "safe") == SAFE
    for headers, where in ((people.ana, elsewhere), (people.ana, direct), (people.ben, foreign)):
        assert (await people.ask(headers, where, called))["content"] == GUARD
    # Whoever may read the conversation may read the note, and nobody else.
    http = people.world.http
    for path in ("/api/notes/safe", f"/api/notes/safe?thread={group}"):
        assert (await http.get(path, headers=people.ana)).json()["text"] == SAFE
        assert (await http.get(path, headers=people.ben)).status_code == 404
    assert (await http.get(f"/api/notes/safe?thread={direct}", headers=people.ana)).status_code == 404

    assert (await http.delete(f"/chat/conversations/{group}", headers=people.ana)).status_code == 204
    assert (await http.get("/api/notes/safe", headers=people.ana)).status_code == 404
    kept = (await http.get("/api/notes/safe", headers=people.operator)).json()
    assert (kept["shared_with"], kept["text"]) == ("owner", SAFE)


async def test_what_is_not_shared_reaches_nobody_by_any_way(people: People) -> None:
    """Ben's note is the best match for every question, and Ana asks by every way there is."""
    world, http, ana = people.world, people.world.http, people.ana
    await people.note(people.ben, "safe", SAFE, title="Diary of the safe", collections=["secrets"])
    await people.note(people.operator, "refunds", REFUNDS, shared_with="everyone")
    paths = (
        *("/api/notes", "/api/notes?collection=secrets", "/api/collections", "/api/notes/safe", "/api/insight"),
        *(f"/api/notes/search?q={WHICH_CODE}&limit=20", "/api/notes/search?q=diary", "/api/threads"),
    )
    seen = [(await http.get(path, headers=ana)).text for path in paths]
    group = await people.talk(people.ben, kind="group")
    for method, body in (("PUT", {"text": "x"}), ("PATCH", {"shared_with": "everyone"}), ("DELETE", None)):
        refused = await http.request(method, "/api/notes/safe", json=body, headers=ana)
        assert refused.status_code in (403, 404)
        seen.append(refused.text)
    assert (await http.get(f"/api/notes/safe?thread={group}", headers=ana)).status_code == 404

    where, talked = await people.talk(ana), await people.talk(ana, agent="companion")
    grouped = await people.talk(ana, kind="group")
    for question in (WHICH_CODE, WHICH_NOTES, "summarise the diary of the safe", "what does the note safe say?"):
        for conversation, text in ((where, question), (talked, question), (grouped, f"@bot {question}")):
            world.model.will_say("It opens so [source: safe].")
            reply = await people.ask(ana, conversation, text)
            assert [source["id"] for source in reply["sources"]] in ([], ["refunds"])
            seen.append(str(reply))
            context = f"/api/threads/{conversation}/context?include=timeline"
            seen.append((await http.get(context, headers=ana)).text)
    body = {"content": WHICH_CODE}
    streamed = await http.post(
        f"/chat/conversations/{where}/messages", json=body, headers={**ana, "Accept": "text/event-stream"}
    )
    seen.append(streamed.text)
    for model in ("librarian", "companion"):
        asked = {"model": model, "messages": [{"role": "user", "content": WHICH_CODE}]}
        seen.append((await http.post("/v1/chat/completions", json=asked, headers=ana)).text)
    async with calling(world, where, additional_headers=dict(ana)) as phone:
        await phone.ask("r1", WHICH_CODE)
        seen.append(str(await phone.until("final")))
    prompts = [message.text for prompt in world.model.prompts for message in prompt]
    assert not [text for text in (*seen, *prompts) if "31-41-59" in text or "Diary of the safe\n" in text]
    assert not [text for text in seen if "secrets" in text and "has the name" not in text]

    # Ben himself finds it by each of these.
    assert await people.cites(people.ben, await people.talk(people.ben), WHICH_CODE, "safe") == SAFE


async def test_an_agent_with_collections_answers_from_them_alone(people: People) -> None:
    await people.note(people.ana, "safe", SAFE, collections=["Office", "codes"])
    await people.note(people.ana, "refunds", REFUNDS, collections=["shop"])
    await people.note(people.operator, "party", "The party is on Friday at noon.", shared_with="everyone")
    where = await people.talk(people.ana)
    for names in (("office",), ("CODES", "nowhere"), ()):
        await limit_to_collections(people, "librarian", *names)
        assert await people.cites(people.ana, where, WHICH_CODE, "safe") == SAFE
    await limit_to_collections(people, "librarian", "shop")
    assert await people.cites(people.ana, where, HOW_LONG, "refunds") == REFUNDS
    assert (await people.ask(people.ana, where, WHICH_CODE))["content"] == GUARD
    assert (await people.ask(people.ana, where, "summarise the note safe"))["content"] == GUARD
    await people.ask(people.ana, where, WHICH_NOTES)
    listing = people.world.model.prompts[-1][0].text
    assert "[source: refunds]" in listing
    assert "[source: safe]" not in listing
    assert "[source: party]" not in listing

    # A collection that does not exist refuses; one that comes to exist counts from the next turn on.
    await limit_to_collections(people, "librarian", "planning")
    calls = len(people.world.model.calls)
    for question in (WHICH_CODE, WHICH_NOTES, "When is the party?"):
        assert (await people.ask(people.ana, where, question))["content"] == GUARD
    assert len(people.world.model.calls) == calls
    await people.change(people.operator, "party", collections=["planning"])
    assert "Friday at noon" in await people.cites(people.ana, where, "When is the party?", "party")


async def test_an_id_of_two_owners_is_cited_as_the_one_that_was_found(people: People) -> None:
    await people.note(people.operator, "safe", SAFE, shared_with="everyone")
    where = await people.talk(people.ana)
    assert await people.cites(people.ana, where, WHICH_CODE, "safe") == SAFE
    hers = "The safe behind the painting opens with a key."
    await people.note(people.ana, "safe", hers)
    assert await people.cites(people.ana, where, WHICH_CODE, "safe") == hers
    prompt = "\n".join(message.text for message in people.world.model.prompts[-1])
    assert "31-41-59" not in prompt.partition("Sources:")[2].partition("Answer clearly")[0]
    assert (await people.world.http.get("/api/notes/safe", headers=people.ana)).json()["text"] == hers
    assert await people.cites(people.ben, await people.talk(people.ben), WHICH_CODE, "safe") == SAFE
    await people.world.http.delete("/api/notes/safe", headers=people.ana)
    assert await people.cites(people.ana, where, WHICH_CODE, "safe") == SAFE


async def test_a_receipt_names_whose_note_it_was_and_shows_a_title_only_while_it_is_shared(people: People) -> None:
    await people.note(people.operator, "safe", SAFE, title="The safe", shared_with="everyone")
    await people.note(people.ana, "refunds", REFUNDS, title="Returns")
    where = await people.talk(people.ana)
    await people.cites(people.ana, where, WHICH_CODE, "safe")

    async def used() -> dict[str, tuple[str | None, str | None]]:
        context = await people.world.http.get(
            f"/api/threads/{where}/context", params={"include": "timeline"}, headers=people.ana
        )
        return {note["id"]: (note.get("shared_by"), note["title"]) for note in context.json()["notes"]}

    assert (await used())["safe"] == ("local", "The safe")
    assert (await used()).get("refunds", (None, "Returns")) == (None, "Returns")
    await people.note(people.ana, "safe", "Another note of the same name.", title="Mine")
    assert (await used())["safe"] == ("local", None)
    await people.world.http.delete("/api/notes/safe", headers=people.ana)
    await people.change(people.operator, "safe", shared_with="owner")
    assert (await used())["safe"] == ("local", None)


async def test_sharing_while_people_ask_breaks_no_turn(people: People) -> None:
    await people.note(people.operator, "safe", SAFE)
    places = [await people.talk(headers) for headers in (people.ana, people.ben) for _ in range(3)]
    owners = [people.ana] * 3 + [people.ben] * 3

    async def toggle() -> None:
        for number in range(12):
            await people.change(people.operator, "safe", shared_with=("everyone", "owner")[number % 2])

    answers = await asyncio.gather(
        *(people.ask(headers, where, WHICH_CODE) for headers, where in zip(owners, places, strict=True)), toggle()
    )
    for answer in answers[:-1]:
        assert answer is not None
        assert answer["fallbackUsed"] is False
        assert answer["content"] == GUARD or answer["content"].startswith("re: ")
    for headers, where in zip(owners, places, strict=True):
        assert (await people.ask(headers, where, WHICH_CODE))["content"] == GUARD

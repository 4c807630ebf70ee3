"""Test `/api/threads` as the page uses it: last message, search, titles, people, one message, and the explanation of a reply."""

from __future__ import annotations

from typing import Any

from rapport.domain.follow_up import PROMPTS
from rapport.domain.ids import new_id
from rapport.domain.memory import MemoryCandidate
from rapport.storage.conversations.listing import SEARCHED_MESSAGES, SHOWN_CHARACTERS
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.world import World
from tests.turns.test_chime_in import ANN, BEN, CARA, DAN, HOW_LONG, REFUNDS, challenge, crowd, said


async def listed(world: World, **query: Any) -> list[dict[str, Any]]:
    answer = await world.http.get("/api/threads", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["threads"]


async def found(world: World, q: str) -> list[str]:
    return [one["id"] for one in await listed(world, q=q)]


# ---- what was said last


async def test_a_list_shows_what_was_said_last(world: World) -> None:
    empty = await world.conversation()
    here = await world.conversation(title="Trains")
    await world.says(here, "When does the\n\n  night train leave?")
    group = await world.conversation(kind="group", channel="recording")
    await world.post(group, "anybody there?", author=ANN)
    first, second, third = await listed(world)
    assert (first["id"], first["channel"], first["kind"]) == (group, "recording", "group")
    last = first["last_message"]
    assert (last["author"], last["role"], last["text"]) == (ANN["name"], "user", "anybody there?")
    assert last["created_at"] == first["last_at"]
    assert (second["id"], second["title"], second["channel"]) == (here, "Trains", "api")
    assert second["last_message"]["text"] == "re: When does the night train leave?"
    assert (second["last_message"]["role"], second["last_message"]["author"]) == ("assistant", "Companion")
    assert (third["id"], third["last_message"]) == (empty, None)


async def test_the_last_message_is_shortened_to_one_line(world: World) -> None:
    group = await world.conversation(kind="group")
    await world.post(group, "word\n" * 2_000, author=ANN)
    [only] = await listed(world)
    text = only["last_message"]["text"]
    assert len(text) <= SHOWN_CHARACTERS
    assert text.startswith("word word word")
    assert text.endswith("…")
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    await world.post(group, [{"type": "image", "base64": pixel, "mime_type": "image/png"}], author=ANN)
    [only] = await listed(world)
    assert only["last_message"]["text"] == "[picture]"


async def test_a_summary_or_trigger_is_never_the_last_message(world: World) -> None:
    here = await world.conversation()
    await world.says(here, "I have to call the landlord.")
    assert (await world.silence(here)).state == "delivered"
    [only] = await listed(world)
    assert only["last_message"]["text"] == "How is it going?"
    # Nor is a summary, nor a trigger whose reply was erased.
    await world.sql("DELETE FROM messages WHERE metadata ? 'autonomous'")
    [only] = await listed(world)
    assert only["last_message"]["text"] == "re: I have to call the landlord."


# ---- found by words


async def test_words_find_titles_and_what_was_said_lately(world: World) -> None:
    trains = await world.conversation(title="Night trains to Lisbon")
    talk = await world.conversation()
    await world.says(talk, "My sister's ÄRGER with the landlord, 100% true_story")
    other = await world.conversation(title="Boats")
    assert await found(world, "lisbon") == [trains]
    assert await found(world, "TRAINS night") == [trains]
    assert await found(world, "trains landlord") == []  # every word, in one place
    assert await found(world, "landlord sister") == [talk]
    assert await found(world, "ärger") == [talk]
    assert await found(world, "100%") == [talk]
    assert await found(world, "%") == [talk]  # what is typed is no pattern
    assert await found(world, "true_story") == [talk]
    assert await found(world, "truexstory") == []
    assert await found(world, "zebra") == []
    assert await found(world, "   ") == [other, talk, trains]


async def test_words_find_neither_triggers_nor_what_is_somebody_elses(world: World) -> None:
    here = await world.conversation()
    await world.says(here, "I have to call the landlord.")
    assert (await world.silence(here)).state == "delivered"
    assert await found(world, PROMPTS["check_in"]) == []
    assert await found(world, "naturally") == []
    foreign = await world.conversation("bob", title="Secret boats")
    await world.sql("UPDATE messages SET owner_id = 'bob', conversation_id = %s", foreign)
    assert await found(world, "boats") == []
    assert await found(world, "landlord") == []


async def test_a_search_is_paged_and_takes_no_nonsense(world: World) -> None:
    ids = [await world.conversation(title=f"boat {number}") for number in range(5)]
    first = (await world.http.get("/api/threads", params={"q": "boat", "limit": 3})).json()
    rest = (await world.http.get("/api/threads", params={"q": "boat", "limit": 3, "before": first["next"]})).json()
    assert [one["id"] for one in [*first["threads"], *rest["threads"]]] == ids[::-1]
    assert rest["next"] is None
    assert (await world.http.get("/api/threads", params={"q": "x" * 201})).status_code == 422
    assert (await world.http.get("/api/threads", params={"q": "a\x00b"})).status_code == 400


async def test_a_search_looks_at_the_latest_messages_only(world: World) -> None:
    group = await world.conversation(kind="group")
    await said(world, group, ANN, 20 * 1_440, "a needle, long ago")
    await crowd(world, group, SEARCHED_MESSAGES - 1, text="much ado")
    assert await found(world, "needle") == [group]
    await said(world, group, ANN, 1, "one more")
    assert await found(world, "needle") == []


# ---- names


async def test_a_conversation_is_renamed_by_its_owner(world: World) -> None:
    here = await world.conversation()
    await world.says(here, "hello")
    answer = await world.http.patch(f"/api/threads/{here}", json={"title": "  Flat hunting "})
    assert answer.status_code == 200
    renamed = answer.json()
    assert (renamed["id"], renamed["title"], renamed["last_message"]["text"]) == (here, "Flat hunting", "re: hello")
    [only] = await listed(world)
    assert only == renamed
    for nothing in (None, "", "  "):
        assert (await world.http.patch(f"/api/threads/{here}", json={"title": nothing})).json()["title"] is None
    assert (await world.http.patch(f"/api/threads/{here}", json={"title": "x" * 201})).status_code == 422
    assert (await world.http.patch(f"/api/threads/{here}", json={})).status_code == 422
    assert (await world.http.patch(f"/api/threads/{here}", json={"title": "a\x00"})).status_code == 400
    assert (await world.http.patch(f"/api/threads/{here}", json={"title": "a", "owner": "bob"})).status_code == 422
    foreign = await world.conversation("bob", title="Bob's")
    for id_ in (foreign, new_id(), "nonsense"):
        assert (await world.http.patch(f"/api/threads/{id_}", json={"title": "mine"})).status_code == 404
    assert await world.sql("SELECT title FROM conversations WHERE id = %s", foreign) == [("Bob's",)]


# ---- people


async def test_the_people_of_a_group_are_those_who_spoke_the_latest_first(world: World) -> None:
    group = await world.conversation(kind="group", handle="ourbot")
    for author in (ANN, BEN, CARA, BEN):
        await world.post(group, "hi all", author=author)
    await world.post(group, "beep", author={"id": "machine", "name": "Machine"}, is_bot=True)
    await world.says(group, "@bot hello", author={"id": ANN["id"], "name": "Ann the second"})
    answer = (await world.http.get(f"/api/threads/{group}/people")).json()
    assert answer["people"] == [{"id": ANN["id"], "name": "Ann the second"}, BEN, CARA]
    assert answer["agent"] == {"id": "companion", "name": "Companion", "handles": ["ourbot", "bot", "companion"]}
    direct = await world.conversation()
    await world.says(direct, "hello")
    assert (await world.http.get(f"/api/threads/{direct}/people")).json()["people"] == []


async def test_no_more_people_than_a_list_can_show(world: World) -> None:
    group = await world.conversation(kind="group")
    for number in range(60):
        await world.sql(
            "INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, created_at)"
            " VALUES (%s, %s, 'local', 'user', %s, %s, 'hi', clock_timestamp())",
            group,
            new_id(),
            f"p{number}",
            f"Person {number}",
        )
    people = (await world.http.get(f"/api/threads/{group}/people")).json()["people"]
    assert [one["id"] for one in people] == [f"p{number}" for number in range(59, 9, -1)]


# ---- one message, and as HTML


async def test_one_message_is_what_history_shows_of_it(world: World) -> None:
    here = await world.conversation()
    reply = await world.says(here, "**hello** <b>there</b>")
    question, answer = await world.history(here, render="html")
    assert question["html"] == "<p><strong>hello</strong> &lt;b&gt;there&lt;/b&gt;</p>\n"
    assert answer["html"] == "<p>re: <strong>hello</strong> &lt;b&gt;there&lt;/b&gt;</p>\n"
    assert [{key: one[key] for key in one if key != "html"} for one in (question, answer)] == await world.history(here)
    one = await world.http.get(f"/api/threads/{here}/messages/{reply['id']}", params={"render": "html"})
    assert one.json() == answer
    plain = (await world.http.get(f"/api/threads/{here}/messages/{reply['id']}")).json()
    assert "html" not in plain
    assert plain["content"] == reply["content"]
    assert (await world.http.get(f"/api/threads/{here}/history", params={"render": "pdf"})).status_code == 422


async def test_a_citation_is_a_link_to_its_note_only_where_the_reply_rests_on_it(world: World) -> None:
    await world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS})
    here = await world.conversation()
    world.model.will_say("You have thirty days [source: refunds], I think [source: made-up].")
    await world.says(here, f"{HOW_LONG} [source: refunds]")
    question, answer = await world.history(here, render="html")
    assert [one["id"] for one in answer["sources"]] == ["refunds"]
    chip = '<a class="source" data-note="refunds" href="#source-refunds" rel="noopener noreferrer nofollow">refunds</a>'
    assert answer["html"].count(chip) == 2  # where it is cited, and in the line that lists what was
    assert "made-up" not in answer["html"]
    assert "[source: refunds]" in question["html"]  # what somebody typed is no citation
    assert "<a" not in question["html"]


async def test_what_is_not_there_or_nobody_said_is_not_found(world: World) -> None:
    here = await world.conversation()
    reply = await world.says(here, "hello")
    assert (await world.silence(here)).state == "delivered"
    [(trigger,)] = await world.sql("SELECT id FROM messages WHERE synthetic")
    other = await world.conversation()
    for thread, message in (
        (here, trigger),
        (here, new_id()),
        (here, "nonsense"),
        (other, reply["id"]),
        (new_id(), reply["id"]),
    ):
        assert (await world.http.get(f"/api/threads/{thread}/messages/{message}")).status_code == 404
    for thread in (new_id(), "nonsense"):
        assert (await world.http.get(f"/api/threads/{thread}/people")).status_code == 404


async def test_data_of_one_user_does_not_exist_for_another(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, ben = await make_key(world, "ben")
    await until_closed(world)
    hers = (await world.http.post("/api/threads", headers=ana)).json()["id"]
    said_ = await world.http.post(f"/chat/conversations/{hers}/messages", json={"content": "a secret"}, headers=ana)
    for path in (f"/messages/{said_.json()['id']}", "/people", "/history?render=html", "/context?include=timeline"):
        assert (await world.http.get(f"/api/threads/{hers}{path}", headers=ana)).status_code == 200, path
        assert (await world.http.get(f"/api/threads/{hers}{path}", headers=ben)).status_code == 404, path
    assert (await world.http.get("/api/threads", params={"q": "secret"}, headers=ben)).json()["threads"] == []


# ---- why it said that, with the words


async def test_the_timeline_shows_what_was_chosen_among_what_was_said(world: World) -> None:
    group, first = await challenge(world)
    await said(world, group, BEN, 5 * 1_440, "My bicycle has a flat tyre")
    reply = await world.says(group, "@bot is this still open?", author=DAN, reply_to_id=first)
    answer = await world.http.get(
        f"/api/threads/{group}/context", params={"message_id": reply["id"], "include": "timeline"}
    )
    told = answer.json()
    plain = (await world.http.get(f"/api/threads/{group}/context", params={"message_id": reply["id"]})).json()
    assert {key: told[key] for key in told if key != "timeline"} == plain
    timeline = told["timeline"]
    assert [one["text"] for one in timeline] == [
        "My bicycle has a flat tyre",
        "We should look at the restaurant for the gathering",
        "Any thoughts?",
        "The thai restaurant on 10th Ave?",
        "@bot is this still open?",
    ]
    assert [one["author"] for one in timeline] == [one["name"] for one in (BEN, ANN, BEN, CARA, DAN)]
    assert [one["is_call"] for one in timeline] == [False] * 4 + [True]
    chosen = {one["id"]: {"reasons": one["reasons"], "score": one["score"]} for one in plain["messages"]}
    assert {one["id"]: one["chosen"] for one in timeline if one["chosen"]} == chosen
    assert timeline[1]["chosen"]["reasons"][0] == "anchor"


async def test_what_a_reply_brought_along_stands_in_the_timeline_too(world: World) -> None:
    group = await world.conversation(kind="group")
    snapshot = {"id": "77", "author": "Eve", "text": "From before the agent was there. " * 20}
    reply = await world.says(group, "@bot what about this?", author=DAN, context_snapshot=snapshot)
    told = await world.http.get(
        f"/api/threads/{group}/context", params={"message_id": reply["id"], "include": "timeline"}
    )
    old, call = told.json()["timeline"]
    assert (old["author"], old["chosen"]["reasons"], len(old["text"])) == ("Eve", ["anchor"], 300)
    assert call["is_call"] is True


async def test_notes_and_memories_come_with_their_words_while_they_exist(world: World) -> None:
    await world.http.post("/api/notes", json={"id": "refunds", "title": "Refund rules", "text": REFUNDS})
    memory = await world.app.memory.create(
        "local", "companion", MemoryCandidate("The user sends goods back all the time.")
    )
    here = await world.conversation()
    await world.says(here, HOW_LONG)
    where = f"/api/threads/{here}/context?include=timeline"
    told = (await world.http.get(where)).json()
    assert [(one["id"], one["title"]) for one in told["notes"]] == [("refunds", "Refund rules")]
    assert [(one["id"], one["text"]) for one in told["memories"]] == [(memory.id, memory.content)]
    assert [one["author"] for one in told["timeline"]] == ["You"]
    await world.http.delete("/api/notes/refunds")
    await world.http.delete(f"/api/memories/{memory.id}")
    told = (await world.http.get(where)).json()
    assert [one["title"] for one in told["notes"]] == [None]
    assert [one["text"] for one in told["memories"]] == [None]


async def test_the_timeline_of_something_said_unasked_has_no_trigger_in_it(world: World) -> None:
    here = await world.conversation()
    await world.says(here, "I have to call the landlord.")
    assert (await world.silence(here)).state == "delivered"
    [question, reply, unasked] = await world.history(here)
    told = await world.http.get(
        f"/api/threads/{here}/context", params={"message_id": unasked["id"], "include": "timeline"}
    )
    timeline = told.json()["timeline"]
    assert [one["id"] for one in timeline] == [question["id"], reply["id"]]
    assert [one["author"] for one in timeline] == ["You", "Companion"]
    assert not any(one["is_call"] for one in timeline)

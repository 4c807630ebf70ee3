"""Test collections and sharing of notes over HTTP: who may see and change what, and what is refused (RAG-1, SEC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rapport.domain.ids import new_id
from tests.channels.http.test_auth import make_key, until_closed
from tests.channels.http.test_notes import COFFEE, PARKING, REFUNDS, added, detail, found, upload, watch
from tests.support.world import World

Headers = Mapping[str, str]


async def listed(world: World, headers: Headers | None = None, **query: Any) -> dict[str, dict[str, Any]]:
    response = await world.http.get("/api/notes", params={"limit": 500, **query}, headers=headers)
    assert response.status_code == 200, response.text
    return {note["id"]: note for note in response.json()["notes"]}


async def collections(world: World, headers: Headers | None = None) -> list[tuple[str, int, int]]:
    rows = (await world.http.get("/api/collections", headers=headers)).json()["collections"]
    return [(row["name"], row["notes"], row["own"]) for row in rows]


async def test_a_note_belongs_to_collections_in_lower_case(world: World) -> None:
    note = await added(world, REFUNDS, id="refunds", collections=["Shop", "handbook", "shop"])
    assert (note["collections"], note["shared_with"], note["owner"], note["is_own"]) == (
        *(["handbook", "shop"], "owner", "local", True),
    )
    await added(world, PARKING, id="parking", collections=["handbook"])
    plain = await added(world, COFFEE, id="coffee")
    assert (plain["collections"], plain["shared_with"]) == ([], "owner")
    assert await collections(world) == [("handbook", 2, 2), ("shop", 1, 1)]
    assert sorted(await listed(world, collection="HANDBOOK")) == ["parking", "refunds"]
    assert list(await listed(world, collection="shop")) == ["refunds"]
    assert await listed(world, collection="nothing") == {}
    assert len(await listed(world)) == 3


async def test_settings_change_without_embedding_and_leave_the_rest(world: World) -> None:
    before = await added(world, REFUNDS, id="refunds", title="Returns", collections=["shop"])
    del before["unchanged"]  # it says what a request has done
    embedder = watch(world)
    changed = (await world.http.patch("/api/notes/refunds", json={"shared_with": "everyone"})).json()
    assert changed == {**before, "shared_with": "everyone"}
    changed = (await world.http.patch("/api/notes/refunds", json={"collections": []})).json()
    assert changed == {**before, "shared_with": "everyone", "collections": []}
    again = await world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS, "collections": ["b", "A"]})
    assert (again.status_code, again.json()["unchanged"]) == (200, True)
    assert again.json()["collections"] == ["a", "b"]
    assert embedder.given == []
    # A new text leaves the settings as they are, unless it comes with others.
    kept = (await world.http.put("/api/notes/refunds", json={"text": PARKING})).json()
    assert (kept["collections"], kept["shared_with"]) == (["a", "b"], "everyone")
    body = {"text": COFFEE, "collections": ["c"], "shared_with": "owner"}
    replaced = (await world.http.put("/api/notes/refunds", json=body)).json()
    assert (replaced["collections"], replaced["shared_with"]) == (["c"], "owner")


async def test_a_file_comes_with_its_settings(world: World) -> None:
    response = await world.http.post(
        "/api/notes",
        files={"file": ("a.txt", REFUNDS.encode())},
        data={"collections": ["Shop", "handbook"], "shared_with": "everyone"},
    )
    note = response.json()
    assert (response.status_code, note["collections"], note["shared_with"]) == (201, ["handbook", "shop"], "everyone")
    newer = await upload(world, "a.txt", PARKING.encode())
    assert (newer.json()["collections"], newer.json()["shared_with"]) == (["handbook", "shop"], "everyone")


async def test_a_shared_note_is_read_by_all_and_changed_by_its_owner_alone(world: World) -> None:
    (_, operator), (_, ana), (_, ben) = [await make_key(world, user) for user in ("local", "ana", "ben")]
    await until_closed(world)
    await added(world, REFUNDS, id="refunds", collections=["shop"], shared_with="everyone", headers=operator)
    await added(world, PARKING, id="parking", headers=ben)
    await added(world, COFFEE, id="coffee", collections=["shop"], headers=ana)

    seen = await listed(world, ana)
    assert sorted(seen) == ["coffee", "refunds"]
    assert (seen["refunds"]["owner"], seen["refunds"]["is_own"], seen["refunds"]["shared_with"]) == (
        *("local", False, "everyone"),
    )
    assert await collections(world, ana) == [("shop", 2, 1)]
    assert await collections(world, ben) == [("shop", 1, 0)]
    assert sorted(await listed(world, ana, collection="shop")) == ["coffee", "refunds"]
    assert (await world.http.get("/api/notes/refunds", headers=ana)).json()["text"] == REFUNDS
    passages = (await found(world, "How long can I return something I bought?", headers=ana))["passages"]
    assert (passages[0]["id"], passages[0]["shared_by"], passages[0]["text"]) == ("refunds", "local", REFUNDS)
    assert [passage["shared_by"] for passage in passages[1:]] == [None]

    for method, body in (("PUT", {"text": "x"}), ("PATCH", {"shared_with": "owner"}), ("DELETE", None)):
        refused = await world.http.request(method, "/api/notes/refunds", json=body, headers=ana)
        assert "is shared by 'local': only its owner can change it" in detail(refused, 403)
        detail(await world.http.request(method, "/api/notes/parking", json=body, headers=ana), 404)
    # She may have a note of that id, which is the one that she sees from then on.
    await added(world, "Nothing comes back.", id="refunds", headers=ana)
    assert (await listed(world, ana))["refunds"]["is_own"] is True
    assert (await listed(world, ben))["refunds"]["owner"] == "local"
    assert (await world.http.delete("/api/notes/refunds", headers=ana)).status_code == 204
    assert (await world.http.get("/api/notes/refunds", headers=ana)).json()["owner"] == "local"
    assert (await world.http.delete("/api/notes/refunds", headers=operator)).status_code == 204
    assert sorted(await listed(world, ana)) == ["coffee"]


async def test_who_may_share_with_whom(world: World) -> None:
    (_, operator), (_, ana), (_, ben) = [await make_key(world, user) for user in ("local", "ana", "ben")]
    await until_closed(world)
    group, direct = await world.conversation("ana", kind="group"), await world.conversation("ana")
    foreign = await world.conversation("ben", kind="group")
    await added(world, REFUNDS, id="refunds", headers=ana)
    await added(world, PARKING, id="parking", headers=operator)

    async def share(note_id: str, audience: str, headers: Headers) -> Any:
        return await world.http.patch(f"/api/notes/{note_id}", json={"shared_with": audience}, headers=headers)

    assert (await share("refunds", group, ana)).json()["shared_with"] == group
    for audience in (direct, foreign, new_id()):
        assert "no group conversation of yours" in detail(await share("refunds", audience, ana), 400)
    assert "only an operator" in detail(await share("refunds", "everyone", ana), 403)
    for path, method in (("/api/notes", "POST"), ("/api/notes/refunds", "PUT")):
        body = {"text": COFFEE, "shared_with": "everyone"}
        assert "only an operator" in detail(await world.http.request(method, path, json=body, headers=ana), 403)
        body = {"text": COFFEE, "shared_with": foreign}
        assert "`shared_with`" in detail(await world.http.request(method, path, json=body, headers=ana), 400)
    assert (await world.http.get("/api/notes/refunds", headers=ana)).json()["shared_with"] == group
    # The operator shares with everyone, and with any group: those of chats belong to no key.
    assert (await share("parking", foreign, operator)).json()["shared_with"] == foreign
    assert sorted(await listed(world, ben)) == ["parking"]
    assert (await share("parking", "everyone", operator)).json()["shared_with"] == "everyone"
    assert sorted(await listed(world, ana)) == ["parking", "refunds"]
    detail(await share("parking", direct, operator), 400)


BAD_SETTINGS: Sequence[tuple[dict[str, Any], int, str]] = (
    ({"collections": "shop"}, 422, "`collections`"),
    ({"collections": [7]}, 422, "collections"),
    ({"collections": None, "shared_with": None}, 400, "`collections`"),
    ({}, 400, "`collections`"),
    ({"collections": [""]}, 400, "`collections`"),
    ({"collections": ["a b"]}, 400, "`collections`"),
    ({"collections": ["a,b"]}, 400, "`collections`"),
    ({"collections": ["ä"]}, 400, "`collections`"),
    ({"collections": ["x\x00"]}, 400, "`collections`"),
    ({"collections": ["\u202e💥"]}, 400, "`collections`"),
    ({"collections": ["x" * 81]}, 400, "`collections`"),
    ({"collections": ["x" * 1_000_000]}, 400, "`collections`"),
    ({"collections": [f"c{number}" for number in range(21)]}, 400, "`collections` has 21 names"),
    ({"shared_with": ""}, 400, "`shared_with`"),
    ({"shared_with": "Everyone"}, 400, "`shared_with`"),
    ({"shared_with": "ana"}, 400, "`shared_with`"),
    ({"shared_with": "x\x00\u202e"}, 400, "`shared_with`"),
    ({"shared_with": "x" * 1_000_000}, 400, "`shared_with`"),
    ({"shared_with": 7}, 422, "`shared_with`"),
    ({"shared_with": ["everyone"]}, 422, "`shared_with`"),
    ({"shared": "everyone"}, 422, "`shared`"),
    ({"text": "x", "collections": []}, 422, "`text`"),
)


async def test_bad_settings_are_refused_with_the_field_and_change_nothing(world: World) -> None:
    before = await added(world, REFUNDS, id="refunds", collections=["shop"])
    del before["unchanged"]
    embedder = watch(world)
    for settings, status, field in BAD_SETTINGS:
        sentence = detail(await world.http.patch("/api/notes/refunds", json=settings), status)
        assert field in sentence, (settings, sentence)
        if "text" not in settings and any(settings.values()):
            for method, path in (("POST", "/api/notes"), ("PUT", "/api/notes/refunds")):
                sentence = detail(await world.http.request(method, path, json={"text": PARKING, **settings}), status)
                assert field in sentence, (settings, sentence)
    for name in ("", "a b", "x" * 81, "ä"):
        assert "`collection`" in detail(await world.http.get("/api/notes", params={"collection": name}), 400)
    detail(await world.http.get("/api/notes/refunds", params={"thread": "x"}), 404)
    for note_id in ("missing", "x%00", "%F0%9F%92%A5"):
        detail(await world.http.patch(f"/api/notes/{note_id}", json={"collections": []}), 404)
    assert embedder.given == []
    assert await listed(world) == {"refunds": before}


async def test_the_most_that_a_note_may_have(world: World) -> None:
    names = [f"{number:02}" + "x" * 78 for number in range(20)]
    note = await added(world, REFUNDS, id="refunds", collections=[*names, *(name.upper() for name in names)])
    assert note["collections"] == names
    assert list(await listed(world, collection=names[7])) == ["refunds"]


async def test_the_list_pages_through_own_and_shared_notes(world: World) -> None:
    (_, operator), (_, ana) = [await make_key(world, user) for user in ("local", "ana")]
    await until_closed(world)
    for number in range(3):
        await added(world, f"Note {number} of the operator.", id=f"o{number}", shared_with="everyone", headers=operator)
        await added(world, f"Note {number} of Ana.", id=f"a{number}", headers=ana)
    await world.sql("UPDATE notes SET updated_at = '2026-01-01' WHERE id IN ('o0', 'a0', 'a1')")
    seen: list[str] = []
    before: str | None = None
    while True:
        query: dict[str, Any] = {"limit": 2} if before is None else {"limit": 2, "before": before}
        shown = (await world.http.get("/api/notes", params=query, headers=ana)).json()
        seen += [note["id"] for note in shown["notes"]]
        if (before := shown["next"]) is None:
            break
    assert seen == ["a2", "o2", "o1", "o0", "a1", "a0"]


@pytest.mark.parametrize("shared_with", ["owner", "everyone"])
async def test_a_reindexed_or_replaced_note_keeps_its_settings(world: World, shared_with: str) -> None:
    await added(world, REFUNDS, id="refunds", collections=["shop"], shared_with=shared_with)
    await world.app.library.reindex("local", "refunds")
    [note] = (await listed(world)).values()
    assert (note["collections"], note["shared_with"]) == (["shop"], shared_with)

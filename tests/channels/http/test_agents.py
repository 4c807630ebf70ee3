"""Test `/api/agents`: the agents of this server."""

from __future__ import annotations

from rapport.agents.profiles import list_agents
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.world import World


async def test_the_agents_say_what_they_are_like(world: World) -> None:
    listed = (await world.http.get("/api/agents")).json()["agents"]
    assert [one["id"] for one in listed] == ["companion", "librarian"]
    companion, librarian = listed
    assert (companion["grounding"], companion["remembers"], companion["follows_up"]) == ("blend", True, True)
    assert (librarian["grounding"], librarian["remembers"], librarian["follows_up"]) == ("strict", False, False)
    assert companion["handles"] == ["bot", "companion"]
    for one in listed:
        assert (await world.http.get(f"/api/agents/{one['id']}")).json() == one
        assert set(one) == {"id", "name", "description", "grounding", "remembers", "follows_up", "handles"}


async def test_an_agents_instructions_are_not_exposed(world: World) -> None:
    told = (await world.http.get("/api/agents")).text
    assert all(agent.persona not in told for agent in list_agents())


async def test_an_unknown_agent_is_not_found(world: World) -> None:
    for name in ("nobody", "%00", "COMPANION", "x" * 300):
        answer = await world.http.get(f"/api/agents/{name}")
        assert answer.status_code == 404
        assert len(answer.text) < 300


async def test_agents_are_shown_to_whoever_may_call(world: World) -> None:
    _, ana = await make_key(world, "ana")
    await until_closed(world)
    assert (await world.http.get("/api/agents")).status_code == 401
    assert (await world.http.get("/api/agents", headers=ana)).status_code == 200

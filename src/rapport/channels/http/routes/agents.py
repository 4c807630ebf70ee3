"""Serve `/api/agents`: the agents of this server."""

from typing import Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from rapport.agents.profiles import find_agent, list_agents
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.channels.http.routes.conversations import Caller
from rapport.domain.agent_profile import AgentProfile, Grounding
from rapport.domain.errors import NotFound


class AgentView(BaseModel):
    """An agent. With `strict` grounding it answers only from notes. `handles` are the names that address it in a group."""

    id: str
    name: str
    description: str
    grounding: Grounding
    remembers: bool
    follows_up: bool
    handles: list[str]


class AgentsView(BaseModel):
    agents: list[AgentView]


def agent_routes(caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/api/agents", tags=["agents"], route_class=StrictRoute)
    owner_id = Depends(caller)

    @router.get("", response_model=AgentsView, summary="List the agents of this server")
    async def list_all(_owner: str = owner_id) -> Response:
        return json_response({"agents": [agent_view(agent) for agent in list_agents()]})

    @router.get("/{agent_id}", response_model=AgentView, summary="Get an agent")
    async def get(agent_id: str, _owner: str = owner_id) -> Response:
        if (agent := find_agent(agent_id)) is None:
            raise NotFound(f"There is no agent {agent_id[:64]!r}.")
        return json_response(agent_view(agent))

    return router


def agent_view(agent: AgentProfile) -> dict[str, Any]:
    """Return the public fields of an agent, without its instructions."""
    return {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "grounding": agent.grounding,
        "remembers": agent.remembers,
        "follows_up": agent.autonomy is not None,
        "handles": list(agent.handles),
    }

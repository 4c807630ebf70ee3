"""Serve `/api/tools`: what an agent's `tools` may name, and the state of the servers behind it."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from rapport.agents.tools.registry import DEFAULT_TOOL_NAMES
from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.core.tools import ToolCatalog
from rapport.domain.caller import Caller
from rapport.domain.tool import ToolScope


class ToolView(BaseModel):
    """A tool. `server` is empty for one of Rapport. One that does not only read, of a server, asks a person first."""

    name: str
    description: str
    server: str
    only_reads: bool
    scope: ToolScope
    is_default: Annotated[bool, Field(description="An agent that names no tools has it")]


class ToolServerView(BaseModel):
    """An MCP server. One that has failed is tried again; `problem` says why."""

    name: str
    state: Literal["connecting", "connected", "failed"]
    problem: str


class ToolsView(BaseModel):
    """The tools that can be called now. Only operators get `servers`, and the tools that no agent of theirs names."""

    tools: list[ToolView]
    servers: list[ToolServerView]


def tool_routes(catalog: ToolCatalog, auth: Authenticator) -> APIRouter:
    router = APIRouter(tags=["tools"], route_class=StrictRoute)
    caller = Depends(auth.authenticate)

    @router.get("/api/tools", response_model=ToolsView, summary="List the tools that an agent may name")
    async def list_tools(by: Caller = caller) -> Response:
        tools = [
            {
                "name": spec.name,
                "description": spec.description,
                "server": spec.server,
                "only_reads": spec.only_reads,
                "scope": spec.scope,
                "is_default": spec.name in DEFAULT_TOOL_NAMES,
            }
            for spec in await catalog.list_for(by)
        ]
        servers = [
            {"name": server.name, "state": server.state, "problem": server.problem}
            for server in catalog.list_servers(by)
        ]
        return json_response({"tools": tools, "servers": servers})

    return router

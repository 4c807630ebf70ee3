"""Serve `/mcp`: Rapport as an MCP server over streamable HTTP, without sessions (ADR 91)."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response
from starlette.exceptions import HTTPException

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.mcp.caller_access import CallerAccess
from rapport.channels.http.openai.conversation_choice import ConversationChoice
from rapport.channels.http.problems import NOT_STORED
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.core.core import Core
from rapport.domain.caller import Caller
from rapport.domain.extras import MCP, missing_extra

if TYPE_CHECKING:
    from rapport.channels.http.auth.rate_limits import Limiter

VERSION_HEADER = "MCP-Protocol-Version"


def mcp_routes(core: Core, auth: Authenticator, *, max_characters: int, limiter: Limiter | None = None) -> APIRouter:
    router = APIRouter(tags=["mcp"], route_class=StrictRoute)
    any_caller = Depends(auth.authenticate)
    conversations = ConversationChoice(core)

    @router.post(
        "/mcp",
        summary="Answer a message of the Model Context Protocol (streamable HTTP)",
        responses={202: {"description": "A notification: there is no answer"}},
    )
    async def receive(request: Request, caller: Caller = any_caller) -> Response:
        if not MCP.is_installed:
            raise HTTPException(501, f"{missing_extra(MCP, 'This address speaks MCP')}")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "Send a message as JSON (`Content-Type: application/json`).")

        async def admit(conversation_id: str) -> None:
            if limiter is not None:
                await limiter.admit(request, caller.owner_id, conversation_id)

        access = CallerAccess(core, conversations, caller, max_characters, admit)
        return await _answer(access, request)

    return router


async def _answer(access: CallerAccess, request: Request) -> Response:
    # In a thread, because the first import takes half a second.
    await asyncio.to_thread(importlib.import_module, "rapport.channels.http.mcp.messages")
    from mcp.shared.version import SUPPORTED_PROTOCOL_VERSIONS

    from rapport.channels.http.mcp.messages import answer_message

    version = request.headers.get(VERSION_HEADER)
    if version is not None and version not in SUPPORTED_PROTOCOL_VERSIONS:
        supported = ", ".join(SUPPORTED_PROTOCOL_VERSIONS)
        raise HTTPException(400, f"`{VERSION_HEADER}` is none of {supported}.")
    answer = await answer_message(access, await request.body())
    if answer.data is None:
        return Response(status_code=202)
    status = 400 if answer.is_malformed else 200
    return Response(answer.data, status_code=status, media_type="application/json", headers=NOT_STORED)

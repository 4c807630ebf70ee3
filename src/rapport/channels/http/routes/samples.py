"""`/api/samples`: load and remove a small notebook and a group chat to try things on."""

from dataclasses import asdict

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.channels.http.routes.conversations import Caller
from rapport.core.core import Core


class SamplesView(BaseModel):
    """The samples that you have; `loaded` is true when they are all there."""

    loaded: bool
    thread_id: str | None
    notes: list[str]


def sample_routes(core: Core, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/api/samples", tags=["samples"], route_class=StrictRoute)
    owner_id = Depends(caller)

    @router.get("", response_model=SamplesView, summary="See whether the samples are loaded")
    async def look(owner: str = owner_id) -> Response:
        return json_response(asdict(await core.samples.find(owner)))

    @router.post(
        "", response_model=SamplesView, summary="Load the samples: some notes and a group chat. Safe to repeat"
    )
    async def load(owner: str = owner_id) -> Response:
        await core.samples.load(owner)
        return json_response(asdict(await core.samples.find(owner)))

    @router.delete("", status_code=204, summary="Remove the samples and nothing else")
    async def remove(owner: str = owner_id) -> Response:
        await core.samples.remove(owner)
        return Response(status_code=204)

    return router

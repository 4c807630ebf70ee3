"""Serve `/api/samples`: load and remove sample notes and a sample group chat."""

from dataclasses import asdict

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.core.core import Core


class SamplesView(BaseModel):
    """Your samples; `loaded` is true when all of them exist."""

    loaded: bool
    thread_id: str | None
    notes: list[str]


def sample_routes(core: Core, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/api/samples", tags=["samples"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)

    @router.get("", response_model=SamplesView, summary="Get the state of the samples")
    async def get_state(owner: str = owner_id) -> Response:
        return json_response(asdict(await core.samples.find(owner)))

    @router.post("", response_model=SamplesView, summary="Load the samples: notes and a group chat. Safe to repeat")
    async def load(owner: str = owner_id) -> Response:
        await core.samples.load(owner)
        return json_response(asdict(await core.samples.find(owner)))

    @router.delete("", status_code=204, summary="Remove the samples")
    async def remove(owner: str = owner_id) -> Response:
        await core.samples.remove(owner)
        return Response(status_code=204)

    return router

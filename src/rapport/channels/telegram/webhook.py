"""Serve `POST /telegram/webhook`, which Telegram calls."""

import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response

from rapport.channels.telegram.bot import WEBHOOK_PATH
from rapport.channels.telegram.inbox import MAX_UPDATE_CHARACTERS, read_update_id
from rapport.domain.errors import InvalidInput, TooLarge, Unauthorized
from rapport.ingest.archive_rows import as_mapping

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - the header's name


class UpdateStore(Protocol):
    """Store updates; they are safe when it returns."""

    async def store(self, updates: Sequence[Mapping[str, Any]]) -> int: ...


def make_webhook_routes(door: UpdateStore, *, secret: str) -> APIRouter:
    """Return the routes. A call without the secret is refused; 200 means that the update is stored."""
    router = APIRouter(tags=["telegram"])

    @router.post(WEBHOOK_PATH, summary="Receive an update of Telegram, which sends the secret")
    async def receive_update(request: Request) -> Response:
        sent_secret = request.headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(sent_secret.encode(errors="replace"), secret.encode()):
            raise Unauthorized("Only Telegram may call this route: the secret is missing or wrong.")
        await door.store([await _read_update(request)])
        return Response(status_code=200)

    return router


async def _read_update(request: Request) -> Mapping[str, Any]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_UPDATE_CHARACTERS:
            raise TooLarge(f"An update has at most {MAX_UPDATE_CHARACTERS} bytes.")
    try:
        update = as_mapping(json.loads(bytes(body)))
    except (ValueError, RecursionError) as error:
        raise InvalidInput("The body is not an update of Telegram: it is not JSON.") from error
    if update is None or read_update_id(update) is None:
        raise InvalidInput("The body is not an update of Telegram: `update_id` is missing or not a number.")
    return update

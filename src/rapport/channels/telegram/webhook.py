"""`POST /telegram/webhook`: how Telegram calls, when it does."""

import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response

from rapport.channels.telegram.bot import WEBHOOK_PATH
from rapport.channels.telegram.inbox import LARGEST, number_of
from rapport.domain.errors import InvalidInput, TooLarge, Unauthorized
from rapport.ingest.archive_rows import mapping

SECRET = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - the header's name


class Door(Protocol):
    """Stores updates; when it returns they are safe."""

    async def take(self, updates: Sequence[Mapping[str, Any]]) -> int: ...


def webhook_routes(door: Door, *, secret: str) -> APIRouter:
    """Who doesn't show the secret isn't Telegram. An answer of 200 means that the update is stored."""
    router = APIRouter(tags=["telegram"])

    @router.post(WEBHOOK_PATH, summary="What Telegram has to tell; only Telegram knows the secret")
    async def called(request: Request) -> Response:
        shown = request.headers.get(SECRET, "")
        if not hmac.compare_digest(shown.encode(errors="replace"), secret.encode()):
            raise Unauthorized("This is for Telegram, which shows a secret.")
        await door.take([await _update(request)])
        return Response(status_code=200)

    return router


async def _update(request: Request) -> Mapping[str, Any]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST:
            raise TooLarge(f"An update has at most {LARGEST} bytes.")
    try:
        update = mapping(json.loads(bytes(body)))
    except (ValueError, RecursionError) as error:
        raise InvalidInput("This is no update of Telegram's: it isn't JSON.") from error
    if update is None or number_of(update) is None:
        raise InvalidInput("This is no update of Telegram's: `update_id` is missing or no number.")
    return update

"""Read JSON requests within limits and parse them strictly into typed bodies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import orjson
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

MAX_BODY_BYTES = 2_000_000
"""Bytes of a JSON request. Uploads have their own limit."""


class _StrictRequest(Request):
    async def body(self) -> bytes:
        """Return the body; raises 413 as soon as it exceeds the limit."""
        if not hasattr(self, "_body"):
            parts: list[bytes] = []
            size = 0
            async for part in self.stream():
                size += len(part)
                if size > MAX_BODY_BYTES:
                    raise HTTPException(413, f"The request is larger than {MAX_BODY_BYTES:,} bytes.")
                parts.append(part)
            self._body = b"".join(parts)
        return self._body

    async def json(self) -> Any:
        """Return the body as strict JSON: no NaN, no lone surrogates, no invalid UTF-8."""
        try:
            return orjson.loads(await self.body())
        except orjson.JSONDecodeError as error:
            raise HTTPException(400, f"The body is not valid JSON: {error}.") from error


Handler: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """A route that reads its requests strictly."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return handle


class Body(BaseModel):
    """A request body. Unknown fields are an error: a misspelt one would be lost silently."""

    model_config = ConfigDict(extra="forbid", strict=True)


AnyBody = TypeVar("AnyBody", bound=Body)
Endpoint: TypeAlias = Callable[[Request, AnyBody], Coroutine[Any, Any, Response]]


def make_direct_route(kind: type[AnyBody], endpoint: Endpoint[AnyBody]) -> type[StrictRoute]:
    """Return a kind of route that calls the endpoint with a valid body, without FastAPI's way to solve dependencies.

    FastAPI describes the route, and answers every request whose body is not valid JSON of that kind.
    """

    class DirectRoute(StrictRoute):
        def get_route_handler(self) -> Handler:
            handler = APIRoute.get_route_handler(self)

            async def handle(request: Request) -> Response:
                strict = _StrictRequest(request.scope, request.receive)
                if request.headers.get("content-type") != "application/json" or not await strict.body():
                    return await handler(strict)
                try:
                    body = kind.model_validate(await strict.json())
                except ValidationError:
                    return await handler(strict)
                return await endpoint(strict, body)

            return handle

    return DirectRoute


def parse_body(kind: type[AnyBody], value: object) -> AnyBody:
    """Parse a body outside of its route, with the same errors."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        # As FastAPI does: the first part of a place says which part of the request it is in.
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from error


class AuthorBody(Body):
    id: Annotated[str, Field(min_length=1, max_length=200)]
    name: Annotated[str, Field(min_length=1, max_length=200)]


class NewConversation(Body):
    agent: Annotated[str | None, Field(max_length=64)] = None
    kind: Literal["direct", "group"] = "direct"
    title: Annotated[str | None, Field(max_length=200)] = None


class NoteSettingsBody(Body):
    """`shared_with` is `owner`, `everyone` or the id of a group conversation."""

    collections: list[str] | None = None
    shared_with: str | None = None


class NoteBody(NoteSettingsBody):
    id: Annotated[str | None, Field(max_length=80)] = None
    title: Annotated[str | None, Field(max_length=200)] = None
    text: str


class MemoryBody(Body):
    content: str
    key: str | None = None


class MemoryEdit(Body):
    content: str | None = None
    key: str | None = None


class SnapshotBody(Body):
    """The message that is replied to, for a channel that can't know whether that message is stored here."""

    id: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    author: Annotated[str, Field(min_length=1, max_length=200)] | AuthorBody | None = None
    text: Annotated[str, Field(min_length=1)]
    created_at: Annotated[str | None, Field(max_length=40)] = None


class NewMessage(Body):
    """A new message. `mentions` and the fields after it are for bridges to chat platforms."""

    content: str | list[dict[str, Any]]
    author: AuthorBody | None = None
    reply_to_id: Annotated[str | None, Field(max_length=64)] = None
    client_message_id: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    mentions: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=50)] = []
    thread_id: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    is_bot: bool = False
    platform_id: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    reply_to_platform_id: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    context_snapshot: SnapshotBody | None = None

"""Uploads: one file and a few fields as multipart/form-data, read within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.types import Message

from rapport.domain.errors import Busy, InvalidInput, TooLarge

_AROUND = 100_000
"""Bytes that fields and boundaries may take beside the file."""
_PATIENCE = 200_000_000
"""How much more than the limit is listened to, so that a client which is still sending can read the answer."""


ARRIVAL_SECONDS = 300.0
STALL_SECONDS = 30.0
"""What an upload may take to arrive, and how long nothing of it may: one that stands still keeps the others out."""

AT_ONCE = 8
"""Uploads that are read at a time: each is held in memory until it has become a note."""


@dataclass(slots=True)
class Uploads:
    """How many uploads this process is busy with."""

    under_way: int = 0

    @contextmanager
    def one_more(self) -> Generator[None]:
        """Around the handling of an upload; raises Busy when there are enough."""
        if self.under_way >= AT_ONCE:
            raise Busy("The server is reading as many files as it can; send this one again in a moment.", retry_after=5)
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as it was sent, and the other fields of its form."""

    name: str
    data: bytes
    fields: dict[str, str]


async def read_upload(request: Request, *, max_bytes: int, stall_seconds: float = STALL_SECONDS) -> Upload:
    """The file in the field `file`; raises InvalidInput or TooLarge, and HTTPException for one that doesn't arrive."""
    body = await _body(request, max_bytes + _AROUND, stall_seconds)

    async def replay() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        async with Request(request.scope, replay).form(max_files=1, max_fields=8, max_part_size=_AROUND) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise InvalidInput("The form has no file: send it in the field `file`.")
            # A form on a page sends what was left empty too.
            fields = {name: value for name, value in form.multi_items() if isinstance(value, str) and value.strip()}
            return Upload(file.filename or "", await file.read(), fields)
    except UnicodeError as error:  # from an encoding that only exists to fail
        raise InvalidInput("The form can't be read in the encoding that it names; use UTF-8.") from error


async def _body(request: Request, limit: int, stall_seconds: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    now = asyncio.get_running_loop().time
    end = now() + ARRIVAL_SECONDS
    try:
        async with asyncio.timeout(stall_seconds) as patience:
            async for part in request.stream():
                patience.reschedule(min(now() + stall_seconds, end))
                size += len(part)
                if size > limit + _PATIENCE:
                    raise HTTPException(413, "The upload is far too large.")
                if size > limit:
                    parts.clear()
                else:
                    parts.append(part)
    except TimeoutError as error:
        raise HTTPException(
            408, "The upload took too long to arrive; send it again.", headers={"Connection": "close"}
        ) from error
    if size > limit:
        raise TooLarge(f"The upload has {size:,} bytes; at most {limit - _AROUND:,} are accepted. Split the file.")
    return b"".join(parts)

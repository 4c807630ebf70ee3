"""Read uploads within limits: one file and a few fields as multipart/form-data.

`connection_limits.py` limits how slowly an upload may arrive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.types import Message

from rapport.domain.errors import Busy, InvalidInput, TooLarge, TooMany

_FORM_OVERHEAD_BYTES = 100_000
"""Bytes that fields and boundaries may take beside the file."""
_DRAIN_BYTES = 200_000_000
"""Bytes beyond the limit that are still read, so that a client which is still sending gets the response."""


MAX_PER_OWNER = 4
"""Concurrent uploads of one owner: each is held in memory until it is stored as a note."""
MAX_SHARED = 8
"""Concurrent uploads of all owners; above it only an owner without a running upload may start one."""
MAX_UPLOADS = 32


@dataclass(slots=True)
class Uploads:
    """Count the running uploads of this process by owner."""

    _under_way: Counter[str] = field(default_factory=Counter[str])

    @contextmanager
    def reserve(self, owner_id: str) -> Generator[None]:
        """Count one upload during the block; raises TooMany at the owner's limit, Busy at the server's limit."""
        owner_count, total_count = self._under_way[owner_id], self._under_way.total()
        if owner_count >= MAX_PER_OWNER:
            raise TooMany(
                f"The server is still reading {owner_count} of your files. Send this one later.", retry_after=5
            )
        if total_count >= (MAX_SHARED if owner_count else MAX_UPLOADS):
            raise Busy("The server is reading as many files as it can. Send this one again later.", retry_after=5)
        self._under_way[owner_id] += 1
        try:
            yield
        finally:
            self._under_way[owner_id] -= 1
            if not self._under_way[owner_id]:
                del self._under_way[owner_id]


@dataclass(frozen=True, slots=True)
class Upload:
    """A sent file, and the other fields of its form."""

    name: str
    data: bytes
    fields: dict[str, str]
    """The last value of each."""
    lists: dict[str, list[str]]
    """All values of each."""


async def read_upload(request: Request, *, max_bytes: int) -> Upload:
    """Return the file in the field `file`; raises InvalidInput, TooLarge, or ClientDisconnect if it is incomplete."""
    body = await _body(request, max_bytes + _FORM_OVERHEAD_BYTES)

    async def replay() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        async with Request(request.scope, replay).form(
            max_files=1, max_fields=8, max_part_size=_FORM_OVERHEAD_BYTES
        ) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise InvalidInput("The form has no file: send it in the field `file`.")
            # Browsers send empty fields too.
            fields = {name: value for name, value in form.multi_items() if isinstance(value, str) and value.strip()}
            lists = {name: [value for value in form.getlist(name) if isinstance(value, str)] for name in fields}
            return Upload(file.filename or "", await file.read(), fields, lists)
    except UnicodeError as error:  # the form names an encoding such as `undefined`
        raise InvalidInput("The form can't be decoded with the encoding that it names. Use UTF-8.") from error


async def _body(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit + _DRAIN_BYTES:
            raise HTTPException(413, "The upload is far too large.")
        if size > limit:
            parts.clear()
        else:
            parts.append(part)
    if size > limit:
        raise TooLarge(
            f"The upload has {size:,} bytes; at most {limit - _FORM_OVERHEAD_BYTES:,} are accepted. Split the file."
        )
    return b"".join(parts)

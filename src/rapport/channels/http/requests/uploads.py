"""Uploads: one file and a few fields as multipart/form-data, read within limits.

How slowly one may arrive is for `receiving.py`, as with every request.
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
"""How much more than the limit is listened to, so that a client which is still sending can read the answer."""


MAX_PER_OWNER = 4
"""Uploads of one owner at a time: each is held in memory until it has become a note."""
MAX_SHARED = 8
"""Uploads at a time of all owners; beyond it, only who has none under way may begin one."""
MAX_UPLOADS = 32


@dataclass(slots=True)
class Uploads:
    """Counts the uploads that this process is busy with, by owner."""

    _under_way: Counter[str] = field(default_factory=Counter[str])

    @contextmanager
    def reserve(self, owner_id: str) -> Generator[None]:
        """Count one upload while the block lasts; raises TooMany when the owner has enough, Busy when everybody has."""
        mine, all_ = self._under_way[owner_id], self._under_way.total()
        if mine >= MAX_PER_OWNER:
            raise TooMany(f"{mine} files of yours are being read already; send this one in a moment.", retry_after=5)
        if all_ >= (MAX_SHARED if mine else MAX_UPLOADS):
            raise Busy("The server is reading as many files as it can; send this one again in a moment.", retry_after=5)
        self._under_way[owner_id] += 1
        try:
            yield
        finally:
            self._under_way[owner_id] -= 1
            if not self._under_way[owner_id]:
                del self._under_way[owner_id]


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as it was sent, and the other fields of its form."""

    name: str
    data: bytes
    fields: dict[str, str]


async def read_upload(request: Request, *, max_bytes: int) -> Upload:
    """Return the file in the field `file`; raises InvalidInput or TooLarge, and ClientDisconnect for one that is cut off."""
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
            # A form on a page sends what was left empty too.
            fields = {name: value for name, value in form.multi_items() if isinstance(value, str) and value.strip()}
            return Upload(file.filename or "", await file.read(), fields)
    except UnicodeError as error:  # from an encoding that only exists to fail
        raise InvalidInput("The form can't be read in the encoding that it names; use UTF-8.") from error


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

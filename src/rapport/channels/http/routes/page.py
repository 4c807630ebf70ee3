"""Serve `/`: the page, from the files of the folder `page`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from rapport.domain.errors import Permanent

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
START = "index.html"

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # cached, but revalidated each time: a new version shows at once
}
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
"""The types of files that are served. Other files in the folder are not served."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, as it was when the server started."""

    data: bytes
    kind: str

    @property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.data).hexdigest()[:32]}"'


def read_page(folder: Traversable | None = None) -> dict[str, PageFile]:
    """Read the files of the page, by their path below the folder."""
    files: dict[str, PageFile] = {}
    _read(folder or resources.files("rapport") / "page", "", files)
    return files


def _read(folder: Traversable, path: str, files: dict[str, PageFile]) -> None:
    for entry in folder.iterdir() if folder.is_dir() else ():
        suffix = entry.name[entry.name.rfind(".") :]
        if entry.is_dir():
            _read(entry, f"{path}{entry.name}/", files)
        elif suffix in _KINDS:
            files[path + entry.name] = PageFile(entry.read_bytes(), _KINDS[suffix])


def page_routes(files: dict[str, PageFile]) -> APIRouter:
    """Return the routes of the page at `/` and of its files under `/page/`. Only files read at the start are served."""
    if START not in files:
        raise Permanent("The page is missing: this installation of Rapport is incomplete.")
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def start(request: Request) -> Response:
        return _answer(request, files[START])

    @router.get("/page/{name:path}")
    async def file(request: Request, name: str) -> Response:
        if (page_file := files.get(name)) is None:
            raise HTTPException(404)
        return _answer(request, page_file)

    return router


def _answer(request: Request, file: PageFile) -> Response:
    tag = file.tag
    headers = {**HEADERS, "ETag": tag}
    client_tags = {one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")}
    if client_tags & {tag, "*"}:
        return Response(status_code=304, headers=headers)
    return Response(file.data, headers={**headers, "Content-Type": file.kind})

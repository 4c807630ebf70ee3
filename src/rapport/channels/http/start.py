"""The start page: what is running, and how to talk with it."""

from __future__ import annotations

import html
from importlib import resources

from fastapi import APIRouter, Request, Response

_POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_HINT = (
    "The built-in model needs no key and knows little. Set RAPPORT_MODEL for a real one, for example "
    "openai:gpt-5-mini with OPENAI_API_KEY, or ollama:qwen3; rapport doctor says whether it works."
)


def start_routes(model: str) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    folder = resources.files("rapport.channels.http")
    page = (folder / "start.html").read_text()
    style = (folder / "start.css").read_text()

    @router.get("/")
    async def start(request: Request) -> Response:
        shown = page.format(
            model="the built-in model" if model == "builtin" else html.escape(model),
            hint=_HINT if model == "builtin" else "",
            address=html.escape(str(request.base_url).rstrip("/")),
        )
        headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
        return Response(shown, media_type="text/html", headers=headers)

    @router.get("/start.css")
    async def css() -> Response:
        return Response(style, media_type="text/css", headers={"X-Content-Type-Options": "nosniff"})

    return router

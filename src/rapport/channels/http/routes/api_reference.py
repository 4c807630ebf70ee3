"""Serve `/docs`: a page about every route, made from `/openapi.json`. It loads no script of another site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from typing import Any

from fastapi import APIRouter, FastAPI, Response

from rapport.channels.http.routes.page import HEADERS

Json = Mapping[str, Any]

_CODE = re.compile(r"`([^`]+)`")
_SCHEMAS = "#/components/schemas/"
_FRAME = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}: routes</title>
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/base.css">
<link rel="stylesheet" href="/docs.css">
<script src="/page/theme.js"></script>
</head>
<body>
<main>
<h1>{title} {version}: routes</h1>
<p>{description} Programs can read <a href="/openapi.json">openapi.json</a>.</p>
{body}
</main>
</body>
</html>
"""


def reference_routes(app: FastAPI) -> APIRouter:
    """Return the route `/docs`, which describes all routes of `app` at the first request."""
    router = APIRouter(include_in_schema=False)
    page: list[bytes] = []
    style = (resources.files("rapport.channels.http.routes") / "api_reference.css").read_bytes()

    @router.get("/docs")
    async def docs() -> Response:
        if not page:
            page.append(reference(app.openapi()).encode())
        return Response(page[0], headers=HEADERS, media_type="text/html; charset=utf-8")

    @router.get("/docs.css")
    async def css() -> Response:
        return Response(style, headers=HEADERS, media_type="text/css; charset=utf-8")

    return router


def reference(described: Json) -> str:
    """Return a page for an OpenAPI description. All text of the description is escaped."""
    info: Json = described["info"]
    by_tag: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            by_tag.setdefault((route.get("tags") or ["more"])[0], []).append("".join(_route(path, method, route)))
    shapes: Json = described.get("components", {}).get("schemas", {})
    parts = [f"<h2>{escape(tag)}</h2>\n{''.join(routes)}" for tag, routes in by_tag.items()]
    parts += [
        "<h2>Types of requests and responses</h2>",
        *("".join(_shape(name, shape)) for name, shape in shapes.items()),
    ]
    return _FRAME.format(
        title=escape(info["title"]),
        version=escape(info["version"]),
        description=_words(info.get("description", "")),
        body="\n".join(parts),
    )


def _route(path: str, method: str, route: Json) -> Iterator[str]:
    yield f"<section><h3><b>{escape(method.upper())}</b> <code>{escape(path)}</code></h3>\n"
    yield f"<p>{_words(route.get('summary', ''))}</p>\n"
    schemas = {parameter["name"]: parameter["schema"] for parameter in route.get("parameters", [])}
    yield from _fields(
        schemas, {parameter["name"] for parameter in route.get("parameters", []) if parameter.get("required")}
    )
    for kind, body in route.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Send {escape(kind)}: {_type(body['schema'])}</p>\n"
        yield from _fields(body["schema"].get("properties", {}), set(body["schema"].get("required", [])))
    yield "<ul>\n"
    for status, answer in route.get("responses", {}).items():
        description = "" if answer["description"] == "Successful Response" else _words(answer["description"])
        types = [_type(content["schema"]) for content in answer.get("content", {}).values() if content.get("schema")]
        status_text = "otherwise" if status == "default" else escape(status)
        yield f"<li><b>{status_text}</b> {': '.join(part for part in (description, ', '.join(types)) if part)}</li>\n"
    yield "</ul></section>\n"


def _shape(name: str, shape: Json) -> Iterator[str]:
    yield f'<section id="{escape(name)}"><h3>{escape(name)}</h3>\n'
    if description := shape.get("description"):
        yield f"<p>{_words(description)}</p>\n"
    yield from _fields(shape.get("properties", {}), set(shape.get("required", [])))
    yield "</section>\n"


def _fields(fields: Json, needed: set[str]) -> Iterator[str]:
    if not fields:
        return
    yield "<dl>\n"
    for name, schema in fields.items():
        notes = [_type(schema), "required" if name in needed else "", _words(schema.get("description", ""))]
        yield f"<dt><code>{escape(name)}</code></dt><dd>{', '.join(filter(None, notes))}</dd>\n"
    yield "</dl>\n"


def _type(schema: Json) -> str:
    """Return the type of a value, with a link to its definition."""
    if reference := schema.get("$ref"):
        name = escape(str(reference).removeprefix(_SCHEMAS))
        return f'<a href="#{name}">{name}</a>'
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(_type(value) for value in schema[several])
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"a list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "anything")))


def _words(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))

"""List the routes of an application, and the fields that each of them reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SCHEMAS = "#/components/schemas/"


def routes_of(routes: Iterable[Any]) -> Iterator[str]:
    """Yield every method and path, also of nested routers."""
    for route in routes:
        inner = getattr(getattr(route, "original_router", None) or getattr(route, "app", None), "routes", None)
        if inner is not None:
            yield from routes_of(inner)
        else:
            for method in sorted(getattr(route, "methods", None) or {"ANY"}):
                yield f"{method} {route.path}"


def fields_of(document: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the fields of every described route: of its path, query, headers and body; those of objects with a dot."""
    fields: dict[str, set[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            names = {str(one["name"]) for one in operation.get("parameters", ())}
            for content in operation.get("requestBody", {}).get("content", {}).values():
                names |= set(_properties(content["schema"], document, ""))
            fields[f"{method.upper()} {path}"] = names
    return fields


def _properties(schema: Mapping[str, Any], document: Mapping[str, Any], before: str) -> Iterator[str]:
    if reference := schema.get("$ref"):
        yield from _properties(document["components"]["schemas"][reference.removeprefix(_SCHEMAS)], document, before)
    for one in schema.get("anyOf", ()):
        yield from _properties(one, document, before)
    if items := schema.get("items"):
        yield from _properties(items, document, before)
    for name, inner in schema.get("properties", {}).items():
        deeper = list(_properties(inner, document, f"{before}{name}."))
        yield from deeper or [f"{before}{name}"]

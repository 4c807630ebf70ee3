"""Test `/docs`: it describes every route and loads nothing from other servers."""

from __future__ import annotations

import re

from rapport.channels.http.routes.api_reference import reference
from rapport.channels.http.routes.page import POLICY
from tests.support.world import World


async def test_every_route_is_described_and_every_link_works(world: World) -> None:
    answer = await world.http.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    described = (await world.http.get("/openapi.json")).json()
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"<b>{method.upper()}</b> <code>{path}</code>" in answer.text
    ids = set(re.findall(r'id="([^"]+)"', answer.text))
    assert set(re.findall(r'href="#([^"]+)"', answer.text)) <= ids


async def test_the_described_errors_are_the_actual_ones(world: World) -> None:
    described = (await world.http.get("/openapi.json")).json()
    assert "HTTPValidationError" not in described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            kinds = list(route["responses"]["default"]["content"])
            assert kinds == ["application/json" if path.startswith("/v1") else "application/problem+json"], (
                method,
                path,
            )
    wrong = await world.http.post("/chat/conversations", json={"nonsense": 1})
    told = described["paths"]["/chat/conversations"]["post"]["responses"]["default"]["content"]
    assert set(wrong.json()) == set(told[wrong.headers["content-type"]]["schema"]["properties"])


async def test_nothing_comes_from_another_site(world: World) -> None:
    """A script of another site would have the rights of the signed-in user."""
    answer = await world.http.get("/docs")
    assert "://" not in re.sub(r"<p>.*?</p>|<dd>.*?</dd>|<li>.*?</li>", "", answer.text, flags=re.DOTALL)
    assert answer.headers["content-security-policy"] == POLICY
    for name in re.findall(r'(?:href|src)="(/[^"]+)"', answer.text):
        assert (await world.http.get(name)).status_code == 200, name


def test_descriptions_are_never_executed_as_script() -> None:
    evil = "<script>alert(1)</script>"
    shape = {"properties": {evil: {"type": "string", "description": evil}}, "description": evil}
    route = {"summary": f"`{evil}`", "responses": {"200": {"description": evil}}}
    told = reference(
        {
            "info": {"title": evil, "version": evil},
            "paths": {f"/{evil}": {"get": route}},
            "components": {"schemas": {"Evil": shape}},
        }
    )
    assert "<script>alert" not in told
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in told

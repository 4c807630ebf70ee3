"""Serve `/api/agents`: the agents that the caller may use, and the ways to make and change them."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field, model_validator

from rapport.agents.document import (
    AgentDocument,
    describe_defaults,
    make_id,
    make_profile,
    merge_document,
    read_document,
)
from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import Body, StrictRoute, parse_body
from rapport.core.agents import ListedAgent, VersionChange
from rapport.core.core import Core
from rapport.domain.agent_profile import AgentProfile, Grounding
from rapport.domain.caller import Caller
from rapport.domain.conversation import extract_text
from rapport.domain.errors import InvalidInput
from rapport.ingest.content import check_content

MAX_TRIED_CHARACTERS = 8_000


class AgentView(BaseModel):
    """An agent. With `strict` grounding it answers only from notes. `handles` are the names that address it in a group."""

    id: str
    name: str
    description: str
    grounding: Grounding
    remembers: bool
    follows_up: bool
    handles: list[str]
    greeting: str
    model: Annotated[str, Field(description="Empty: the server's model")]
    version: int
    for_everyone: bool
    may_edit: bool
    may_copy: Annotated[bool, Field(description="Only who may read an agent's instructions may copy it")]
    is_shipped: bool


class AgentDetailView(AgentView):
    """An agent with every field of its document, if the caller may read its instructions; otherwise without them."""

    persona: str | None = None


class AgentsView(BaseModel):
    agents: list[AgentView]


READ_ONLY = frozenset({"remembers", "follows_up", "version", "may_edit", "may_copy", "is_shipped", "updated_at"})
"""Fields of an agent's view that its document does not have: they are ignored in a body, so that a view can be sent back."""


class AgentBody(AgentDocument):
    @model_validator(mode="before")
    @classmethod
    def drop_read_only(cls, value: object) -> object:
        return _drop_read_only(value)


class NewVersionBody(AgentDocument):
    """An agent that replaces another one; with a version, like `?version=`, only that one."""

    version: Annotated[
        int | None,
        Field(ge=1, exclude=True, description="Only if this is the newest version; otherwise the answer is 409"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def drop_read_only(cls, value: object) -> object:
        return _drop_read_only(value, but="version")


class _KnownVersion(Body):
    version: Annotated[int | None, Field(ge=1)] = None


class CopyBody(Body):
    id: Annotated[str | None, Field(max_length=64)] = None
    name: Annotated[str | None, Field(max_length=80)] = None


class TryBody(Body):
    """A message, and changes of the agent that are tried without being stored."""

    content: Annotated[str, Field(max_length=MAX_TRIED_CHARACTERS)]
    agent: dict[str, Any] | None = None


class TryNewBody(Body):
    """A message, and an agent that is tried without being stored."""

    content: Annotated[str, Field(max_length=MAX_TRIED_CHARACTERS)]
    agent: dict[str, Any]


Version = Annotated[
    int | None, Query(ge=1, description="Only if this is the newest version; otherwise the answer is 409")
]


def agent_routes(core: Core, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/api/agents", tags=["agents"], route_class=StrictRoute)
    caller = Depends(auth.authenticate)
    agents = core.agents

    @router.get("", response_model=AgentsView, summary="List the agents that you may use")
    async def list_all(by: Caller = caller) -> Response:
        listed = await agents.list_visible(by)
        return json_response({"agents": [agent_view(each) for each in listed]})

    @router.post(
        "", status_code=201, response_model=AgentDetailView, summary="Make an agent for yourself, or for everyone"
    )
    async def create(body: AgentBody, by: Caller = caller) -> Response:
        return json_response(agent_detail_view(await agents.create(by, body)), 201)

    @router.get("/{agent_id}", response_model=AgentDetailView, summary="Get an agent")
    async def get(agent_id: str, by: Caller = caller) -> Response:
        return json_response(agent_detail_view(await agents.get(by, agent_id)))

    @router.put("/{agent_id}", response_model=AgentDetailView, summary="Replace an agent by a new version")
    async def replace(agent_id: str, body: NewVersionBody, version: Version = None, by: Caller = caller) -> Response:
        known = _join_versions(version, body.version)
        return json_response(agent_detail_view(await agents.replace(by, agent_id, body, version=known)))

    @router.patch(
        "/{agent_id}",
        response_model=AgentDetailView,
        summary="Change some fields: parts are merged, null restores a default",
    )
    async def change(agent_id: str, body: dict[str, Any], version: Version = None, by: Caller = caller) -> Response:
        changes = cast("dict[str, Any]", _drop_read_only(body))
        known = _join_versions(version, parse_body(_KnownVersion, {"version": body.get("version")}).version)
        return json_response(agent_detail_view(await agents.change(by, agent_id, changes, version=known)))

    @router.delete("/{agent_id}", status_code=204, summary="Delete an agent and what it remembers")
    async def delete(agent_id: str, by: Caller = caller) -> Response:
        await agents.delete(by, agent_id)
        return Response(status_code=204)

    _add_copies_and_versions(router, core, caller)
    _add_tries(router, core, caller)
    return router


def agent_defaults_routes(auth: Authenticator) -> APIRouter:
    router = APIRouter(tags=["agents"], route_class=StrictRoute)
    caller = Depends(auth.authenticate)

    @router.get("/api/agent-defaults", summary="Get what an agent has where its fields are left out, for an editor")
    async def get_defaults(by: Caller = caller) -> Response:
        return json_response({**describe_defaults(), "is_operator": by.is_operator})

    return router


def _add_copies_and_versions(router: APIRouter, core: Core, caller: Any) -> None:
    """Add the routes that make an agent from another one or from an earlier version."""
    agents = core.agents

    @router.post("/{agent_id}/copy", status_code=201, response_model=AgentDetailView, summary="Copy an agent")
    async def copy(agent_id: str, body: CopyBody | None = None, by: Caller = caller) -> Response:
        names = body or CopyBody()
        copied = await agents.copy(by, agent_id, new_id=names.id, name=names.name)
        return json_response(agent_detail_view(copied), 201)

    @router.post(
        "/{agent_id}/reset", response_model=AgentDetailView, summary="Restore an agent that ships with Rapport"
    )
    async def reset(agent_id: str, by: Caller = caller) -> Response:
        return json_response(agent_detail_view(await agents.reset(by, agent_id)))

    @router.get("/{agent_id}/versions", summary="List the versions of an agent, newest first")
    async def list_versions(
        agent_id: str, before: Annotated[int | None, Query(ge=2)] = None, by: Caller = caller
    ) -> Response:
        versions = await agents.list_versions(by, agent_id, before=before)
        oldest = versions[-1].version.version if versions else 1
        following = oldest if oldest > 1 else None
        return json_response({"versions": [version_view(each) for each in versions], "next": following})

    @router.get("/{agent_id}/versions/{version}", summary="Get one version of an agent")
    async def get_version(agent_id: str, version: int, by: Caller = caller) -> Response:
        found = await agents.get_version(by, agent_id, version)
        return json_response(
            {
                "version": found.version,
                "author": found.author_id,
                "created_at": found.created_at,
                "agent": {"id": agent_id, **found.document},
            }
        )

    @router.post(
        "/{agent_id}/versions/{version}/restore",
        response_model=AgentDetailView,
        summary="Make a new version from an earlier one",
    )
    async def restore(agent_id: str, version: int, by: Caller = caller) -> Response:
        return json_response(agent_detail_view(await agents.restore(by, agent_id, version)))


def _add_tries(router: APIRouter, core: Core, caller: Any) -> None:
    """Add the routes that give one answer of an agent and store nothing."""

    @router.post("/try", summary="Get one answer of an agent that is not stored yet; only its usage is stored")
    async def try_new(body: TryNewBody, by: Caller = caller) -> Response:
        profile = _make_new_profile(core, by, body.agent)
        return await _answer(core, by.owner_id, profile, body.content)

    @router.post(
        "/{agent_id}/try", summary="Get one answer of an agent, with unsaved changes; only its usage is stored"
    )
    async def try_(agent_id: str, body: TryBody, by: Caller = caller) -> Response:
        profile = await _make_tried_profile(core, by, agent_id, body.agent)
        return await _answer(core, by.owner_id, profile, body.content)


async def _answer(core: Core, owner: str, profile: AgentProfile, text: str) -> Response:
    content = check_content(text, limit=MAX_TRIED_CHARACTERS)
    reply = await core.runner.try_agent(owner, profile, extract_text(content))
    return json_response(
        {
            "content": extract_text(reply.content),
            "sources": list(reply.sources),
            "guardUsed": bool(reply.metadata.get("guard_used")),
            "fallbackUsed": bool(reply.metadata.get("fallback_used")),
        }
    )


async def _make_tried_profile(
    core: Core, editor: Caller, agent_id: str, changes: Mapping[str, Any] | None
) -> AgentProfile:
    """Return the agent with unsaved changes, which only who may edit it can try."""
    listed = await core.agents.get(editor, agent_id)
    if not changes:
        return listed.profile
    if not listed.may_edit:
        raise InvalidInput("`agent`: only who may change this agent can try changes of it.")
    merged = merge_document(listed.document, cast("dict[str, Any]", _drop_read_only(dict(changes))))
    document = read_document({**merged, "id": None, "for_everyone": None})
    core.agents.check_rights(document, editor, before=listed.document)
    return make_profile(document, agent_id=agent_id, owner_id=listed.profile.owner_id)


def _make_new_profile(core: Core, editor: Caller, fields: Mapping[str, Any]) -> AgentProfile:
    """Return the agent that these fields would make, after the checks that making it would do."""
    document = read_document(_drop_read_only(dict(fields)))
    core.agents.check_rights(document, editor)
    return make_profile(document, agent_id=document.id or make_id(document.name), owner_id=editor.owner_id)


def _join_versions(asked: int | None, sent: int | None) -> int | None:
    """Return the version that the caller knows, from the query or from the body."""
    if None not in (asked, sent) and asked != sent:
        raise InvalidInput("`version` in the address and `version` in the body differ: send one of them.")
    return sent if asked is None else asked


def _drop_read_only(value: object, *, but: str = "") -> object:
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {name: field for name, field in fields.items() if name == but or name not in READ_ONLY}


def agent_view(listed: ListedAgent) -> dict[str, Any]:
    """Return the public fields of an agent, without its instructions."""
    profile = listed.profile
    return {
        "id": profile.id,
        "name": profile.name,
        "description": profile.description,
        "grounding": profile.grounding,
        "remembers": profile.remembers,
        "follows_up": profile.autonomy is not None,
        "handles": list(profile.handles),
        "greeting": profile.greeting,
        "model": profile.model.name,
        "version": profile.version,
        "for_everyone": profile.is_for_everyone,
        "may_edit": listed.may_edit,
        "may_copy": listed.may_read_text,
        "is_shipped": listed.is_shipped,
    }


def agent_detail_view(listed: ListedAgent) -> dict[str, Any]:
    """Return an agent with its document, if the caller may read it."""
    document: Mapping[str, Any] = listed.document if listed.may_read_text else {}
    return {**document, **agent_view(listed), "updated_at": listed.updated_at}


def version_view(change: VersionChange) -> dict[str, Any]:
    version = change.version
    return {
        "version": version.version,
        "author": version.author_id,
        "created_at": version.created_at,
        "changes": {name: {"before": before, "after": after} for name, (before, after) in change.changes.items()},
    }

"""Read and write an agent as people edit it: the same fields in the API, on the page, in YAML files and in the database."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rapport.agents.models import BUILTIN, NEEDS
from rapport.agents.tools.registry import TOOL_NAMES
from rapport.domain.agent_profile import (
    AGENT_ID,
    EVERYONE,
    MAX_ID_CHARACTERS,
    AgentProfile,
    ContextChoice,
    Grounding,
    ModelChoice,
    ReflectionMode,
)
from rapport.domain.context_selection import MAX_CONTEXT_TOKENS, MAX_RECENT_MESSAGES, Strategy
from rapport.domain.errors import InvalidFields, InvalidInput
from rapport.domain.follow_up import (
    DEFAULT_VARIANT,
    MIN_EXPIRY_SECONDS,
    PROMPTS,
    TRIGGER_TYPES,
    Autonomy,
    PromptVariant,
    TriggerType,
)
from rapport.domain.note_scope import MAX_COLLECTIONS, check_collection
from rapport.domain.text_checks import check_text, has_visible_text, is_plain_line
from rapport.domain.tool_names import is_outside_name
from rapport.domain.usage import MAX_BUDGET
from rapport.domain.validation_errors import describe_errors
from rapport.replies.reply_kinds import GUARD

MAX_PERSONA_CHARACTERS = 16_000
MAX_HANDLES = 10
MAX_VARIANTS = 8
MAX_TOOLS = 200
_DAY_SECONDS = 86_400.0
_HANDLE = re.compile(r"[^\W_](?:[\w-]{0,62}[^\W_])?")
_VARIANT_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_KEY_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}(?:KEY|TOKEN)")
_SERVERS_OWN = frozenset({"TELEGRAM_BOT_TOKEN"})
"""Variables with secrets of the server, which no model's server may get."""


def _fail(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("invalid_agent", "{sentence}", {"sentence": sentence})


def _check_storable(text: str) -> str:
    try:
        return check_text(text, what="it", limit=len(text))
    except InvalidInput as error:
        raise _fail(str(error).removeprefix("`it` ").rstrip(".")) from None


STORED: Final = {"is_stored": True}
"""The context in which a stored document is read: it may be older than a rule."""


def _check_line(text: str, info: ValidationInfo) -> str:
    if info.context is not STORED and not is_plain_line(text):
        raise _fail("must be one line without control characters, also without those that turn the direction of text")
    return text


def _check_filled(text: str) -> str:
    if not has_visible_text(text):
        raise _fail("must not be empty")
    return text


def _check_id(text: str) -> str:
    if not AGENT_ID.fullmatch(text):
        raise _fail("must begin with a letter or digit and have only a-z, 0-9, - and _, at most 64 characters")
    return text


def _check_handle(text: str) -> str:
    handle = unicodedata.normalize("NFC", text.removeprefix("@"))
    if not _HANDLE.fullmatch(handle):
        raise _fail("must be a word of letters, digits, - and _, at most 64 characters, such as `chef`")
    return handle


def _check_model(name: str) -> str:
    provider, separator, model = name.partition(":")
    if name in ("", BUILTIN) or (separator and model.strip() and provider in NEEDS):
        return name
    providers = ", ".join(f"`{known}:…`" for known in NEEDS)
    raise _fail(f"must be empty (the server's model), `{BUILTIN}`, or one of {providers} with a model's name")


def _check_url(url: str) -> str:
    if url and not re.fullmatch(r"https?://[^\s/@?#]+(?:/[^\s?#]*)?", url):
        raise _fail("must be an address such as `http://127.0.0.1:8080/v1`, without a user name, a query or a fragment")
    return url


def _check_key_variable(name: str) -> str:
    if name and (name in _SERVERS_OWN or not _KEY_VARIABLE.fullmatch(name)):
        raise _fail("must be the name of an environment variable that ends with KEY or TOKEN, never a key itself")
    return name


def _check_collection(name: str) -> str:
    try:
        return check_collection(name, field="collections")
    except InvalidInput:
        raise _fail("must be the name of a collection: 1 to 80 of the characters a-z, 0-9, _ and -") from None


def _check_tool(name: str) -> str:
    if name not in TOOL_NAMES and not is_outside_name(name):
        known = ", ".join(sorted(TOOL_NAMES))
        raise _fail(f"must be one of {known}, or the name of an MCP server's tool, `server__tool` or `server__*`")
    return name


def _check_variant_name(name: str) -> str:
    if not _VARIANT_NAME.fullmatch(name):
        raise _fail("must have 1 to 40 of the characters A-Z, a-z, 0-9, _ and -")
    return name


def _read_variants(value: object) -> object:
    """Accept a plain text for a single variant."""
    if not isinstance(value, str | list):
        raise _fail("must be a text, or a list of variants with `name`, `text` and `weight`")
    return [{"name": "own", "text": value}] if isinstance(value, str) else cast("list[object]", value)


Text = Annotated[str, AfterValidator(_check_storable)]
Line = Annotated[Text, StringConstraints(max_length=200), AfterValidator(_check_line)]
Prompt = Annotated[Text, StringConstraints(max_length=2_000), AfterValidator(_check_filled)]
ToolNames = Annotated[list[Annotated[str, AfterValidator(_check_tool)]], Field(max_length=MAX_TOOLS)]
AgentId = Annotated[str, AfterValidator(_check_id)]
ModelName = Annotated[Line, AfterValidator(_check_model)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ModelOptionsPart(_Part):
    """Options of the model. `base_url` and `key_variable` are for operators."""

    temperature: Annotated[float | None, Field(ge=0, le=2, allow_inf_nan=False)] = None
    max_tokens: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    base_url: Annotated[Line, AfterValidator(_check_url)] = ""
    key_variable: Annotated[Line, AfterValidator(_check_key_variable)] = ""


class VariantPart(_Part):
    """One wording of a trigger's prompt."""

    name: Annotated[str, AfterValidator(_check_variant_name)]
    text: Prompt
    weight: Annotated[float, Field(gt=0, le=1_000, allow_inf_nan=False)] = 1.0


Variants = Annotated[list[VariantPart], BeforeValidator(_read_variants), Field(min_length=1, max_length=MAX_VARIANTS)]


class AutonomyPart(_Part):
    """When and how it follows up."""

    enabled: bool = False
    trigger_types: Annotated[list[TriggerType], Field(min_length=1, max_length=len(TRIGGER_TYPES))] = [*TRIGGER_TYPES]
    min_delay_seconds: Annotated[float, Field(ge=1, le=_DAY_SECONDS, allow_inf_nan=False)] = 30.0
    max_delay_seconds: Annotated[float, Field(ge=1, le=_DAY_SECONDS, allow_inf_nan=False)] = 3_600.0
    max_consecutive: Annotated[int, Field(ge=1, le=10)] = 3
    min_gap_seconds: Annotated[float, Field(ge=1, le=_DAY_SECONDS, allow_inf_nan=False)] = 15.0
    expiry_seconds: Annotated[float, Field(ge=MIN_EXPIRY_SECONDS, le=7 * _DAY_SECONDS, allow_inf_nan=False)] = 3_600.0
    prompts: dict[TriggerType, Variants] = {}

    @model_validator(mode="after")
    def check_together(self) -> AutonomyPart:
        if self.min_delay_seconds > self.max_delay_seconds:
            raise _fail("`min_delay_seconds` must not be larger than `max_delay_seconds`")
        for trigger_type, variants in self.prompts.items():
            names = [variant.name for variant in variants]
            if len({*names}) < len(names):
                raise _fail(f"the variants of `prompts.{trigger_type}` must have different names")
        return self


class ContextPart(_Part):
    """How messages of a group are selected; null: the server's setting."""

    strategy: Strategy | None = None
    lookback_limit: Annotated[int | None, Field(ge=1, le=MAX_RECENT_MESSAGES)] = None
    time_threshold_minutes: Annotated[float | None, Field(gt=0, le=100_000, allow_inf_nan=False)] = None
    max_tokens: Annotated[int | None, Field(ge=200, le=8 * MAX_CONTEXT_TOKENS)] = None


_PARTS: Mapping[str, type[_Part]] = {
    "model_options": ModelOptionsPart,
    "autonomy": AutonomyPart,
    "context": ContextPart,
}


class AgentDocument(_Part):
    """An agent. Every field but `name` and `persona` has a default; a strict agent needs no persona."""

    id: Annotated[AgentId | None, Field(description="Made from the name if it is left out; can't be changed")] = None
    for_everyone: Annotated[
        bool | None, Field(description="Operators: everyone on the server may use it; can't be changed")
    ] = None
    name: Annotated[Text, StringConstraints(max_length=80), AfterValidator(_check_line), AfterValidator(_check_filled)]
    description: Annotated[Text, StringConstraints(max_length=500)] = ""
    persona: Annotated[Text, StringConstraints(max_length=MAX_PERSONA_CHARACTERS)] = ""
    handles: Annotated[list[Annotated[str, AfterValidator(_check_handle)]], Field(max_length=MAX_HANDLES)] = []
    greeting: Annotated[Text, StringConstraints(max_length=1_000)] = ""
    model: ModelName = ""
    model_options: ModelOptionsPart = ModelOptionsPart()
    fallback_model: ModelName = ""
    grounding: Grounding = "blend"
    guard_text: Annotated[Text, StringConstraints(max_length=1_000)] = ""
    min_similarity: Annotated[float | None, Field(ge=0, le=1, allow_inf_nan=False)] = None
    collections: Annotated[
        list[Annotated[str, AfterValidator(_check_collection)]], Field(max_length=MAX_COLLECTIONS)
    ] = []
    memory: bool = True
    autonomy: AutonomyPart = AutonomyPart()
    context: ContextPart = ContextPart()
    max_chat_history: Annotated[int | None, Field(ge=4, le=200)] = None
    tools: Annotated[
        ToolNames | None, Field(description="null: the default tools of Rapport, and none of MCP servers")
    ] = None
    tools_without_approval: Annotated[
        ToolNames, Field(description="Tools of MCP servers that change something and run without asking a person")
    ] = []
    monthly_token_budget: Annotated[int | None, Field(ge=0, le=MAX_BUDGET)] = None
    reflection: Annotated[
        Literal["off", "when_open", "always"] | None, Field(description="null: the server's setting")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def point_into_parts(cls, value: object) -> object:
        """Say where a field belongs that stands beside its part."""
        if not isinstance(value, dict):
            return value
        fields = cast("dict[str, Any]", value)
        for name in fields:
            parts = [part for part, kind in _PARTS.items() if name in kind.model_fields]
            if parts and name not in cls.model_fields:
                raise _fail(f"`{name}` belongs inside {' or '.join(f'`{part}`' for part in parts)}")
        return fields

    @model_validator(mode="after")
    def check_together(self) -> AgentDocument:
        if self.grounding != "strict" and not has_visible_text(self.persona):
            raise _fail("`persona` must not be empty: say in a few sentences who the agent is and how it answers")
        folded = [handle.casefold() for handle in self.handles]
        if len({*folded}) < len(folded):
            raise _fail("`handles` must differ from each other")
        return self


def read_document(value: object) -> AgentDocument:
    """Return the agent of a parsed file or request; raise InvalidFields with a sentence for each mistake."""
    try:
        return AgentDocument.model_validate(value)
    except ValidationError as error:
        raise InvalidFields(describe_errors(error.errors())) from None


def merge_document(current: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with these changes: parts are merged field by field, null restores a field's default."""
    merged = dict(current)
    for name, value in changes.items():
        before = merged.get(name)
        if value is None and (name in merged or name in AgentDocument.model_fields):
            merged.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(before, Mapping):
            merged[name] = merge_document(before, value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            merged[name] = value
    return merged


def make_id(name: str) -> str:
    """Return the id of a name: its letters a-z without accents and its digits; of a name without them a number of its own."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(c))
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_ID_CHARACTERS].strip("-")
    return words or f"agent-{hashlib.sha256(unicodedata.normalize('NFC', name).encode()).hexdigest()[:8]}"


def write_document(document: AgentDocument) -> dict[str, Any]:
    """Return the document as it is stored, with every field but those that its row has."""
    return document.model_dump(mode="json", exclude={"id", "for_everyone"})


def make_profile(
    document: AgentDocument, *, agent_id: str, owner_id: str = EVERYONE, version: int = 1, stamp: int = 0
) -> AgentProfile:
    """Return the profile that turns use."""
    options, autonomy, context = document.model_options, document.autonomy, document.context
    reflection: ReflectionMode | None = document.reflection
    return AgentProfile(
        id=agent_id,
        name=document.name,
        description=document.description,
        persona=document.persona,
        grounding=document.grounding,
        handles=tuple(document.handles) or (agent_id,),
        remembers=document.memory,
        autonomy=_make_autonomy(autonomy) if autonomy.enabled else None,
        reflection=reflection,
        owner_id=owner_id,
        version=version,
        stamp=stamp,
        greeting=document.greeting,
        model=ModelChoice(
            document.model, options.temperature, options.max_tokens, options.base_url, options.key_variable
        ),
        fallback_model=document.fallback_model,
        guard_text=document.guard_text,
        min_similarity=document.min_similarity,
        context=ContextChoice(
            context.strategy, context.lookback_limit, context.time_threshold_minutes, context.max_tokens
        ),
        max_chat_history=document.max_chat_history,
        collections=tuple(document.collections),
        monthly_token_budget=document.monthly_token_budget,
        tools=None if document.tools is None else tuple(document.tools),
        tools_without_approval=tuple(document.tools_without_approval),
    )


def _make_autonomy(part: AutonomyPart) -> Autonomy:
    return Autonomy(
        min_delay=part.min_delay_seconds,
        max_delay=part.max_delay_seconds,
        max_in_a_row=part.max_consecutive,
        min_gap=part.min_gap_seconds,
        expiry=part.expiry_seconds,
        trigger_types=tuple(part.trigger_types),
        prompts={
            trigger_type: tuple(PromptVariant(each.name, each.text, each.weight) for each in variants)
            for trigger_type, variants in part.prompts.items()
        },
    )


def describe_defaults() -> dict[str, Any]:
    """Return the value of each field that is left out, and the contract's texts that an agent may replace."""
    fields = write_document(AgentDocument(name="-", persona="-"))
    document = {name: value for name, value in fields.items() if name not in ("name", "persona")}
    return {
        "document": document,
        "prompts": dict(PROMPTS),
        "variant": DEFAULT_VARIANT,
        "guard_text": GUARD,
    }

"""Make chat models from their LangChain string, with a time-out and without retries of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel

from rapport.domain.errors import Permanent
from rapport.domain.extras import ANTHROPIC, OLLAMA, require_extra

BUILTIN = "builtin"

NEEDS = {"openai": "", "anthropic": "ANTHROPIC_API_KEY", "ollama": ""}
"""The supported providers, and the environment variable that each requires."""

_EXTRAS = {"anthropic": (ANTHROPIC, "Anthropic"), "ollama": (OLLAMA, "Ollama")}


def make_model(name: str, *, timeout: float, environment: Mapping[str, str]) -> BaseChatModel:
    """Return the model that `RAPPORT_MODEL` names; raises Permanent with what to set if it can't be made.

    Provider libraries are imported here and not at the top: each takes up to a second, and only one is used.
    """
    if name == BUILTIN:
        from rapport.builtin import BuiltinChatModel

        return BuiltinChatModel()
    provider, separator, model = name.partition(":")
    if not separator or not model:
        raise Permanent(
            f"RAPPORT_MODEL={name!r} is not a model. Use `builtin`, or provider:model such as `openai:gpt-5-mini`, "
            "`anthropic:claude-sonnet-4-5` or `ollama:qwen3`."
        )
    if provider not in NEEDS:
        raise Permanent(
            f"RAPPORT_MODEL={name!r} names no provider that comes with Rapport; there are {', '.join(NEEDS)}. Any server"
            " that speaks OpenAI's API works as openai:<model> with OPENAI_BASE_URL."
        )
    if (needed := NEEDS[provider]) and not environment.get(needed):
        raise Permanent(f"RAPPORT_MODEL={name!r} can't be used: set {needed}.")
    if provider in _EXTRAS:
        extra, class_name = _EXTRAS[provider]
        require_extra(extra, f"RAPPORT_MODEL names an {class_name} model")
    try:
        if provider == "openai":
            from rapport.agents.openai import make_openai

            return make_openai(model, timeout=timeout, environment=environment)
        return _make_other_model(name, provider, timeout=timeout)
    except Exception as error:
        raise Permanent(f"RAPPORT_MODEL={name!r} can't be used: {_get_first_line(error)}") from error


def _make_other_model(name: str, provider: str, *, timeout: float) -> BaseChatModel:
    from langchain.chat_models import init_chat_model

    settings: dict[str, Any] = {"timeout": timeout, "max_retries": 0}
    if provider == "ollama":
        settings = {"client_kwargs": {"timeout": timeout}}  # it supports neither of the other parameters
    return cast("BaseChatModel", init_chat_model(name, **settings))


def find_server(name: str, environment: Mapping[str, str]) -> str:
    """Return host and port of the server that the environment names for this model; empty for the provider's own."""
    variable = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "ollama": "OLLAMA_HOST"}
    address = environment.get(variable.get(name.partition(":")[0], ""), "")
    return urlsplit(address if "://" in address else f"//{address}").netloc.rpartition("@")[2]


async def close_model(model: BaseChatModel) -> None:
    """Close the model's connections, if it has any."""
    close = getattr(model, "aclose", None)
    if close is not None:
        await close()


def _get_first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

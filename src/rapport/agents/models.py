"""Make chat models from their LangChain string, with a time-out and without retries of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel

from rapport.domain.agent_profile import SERVERS_MODEL, ModelChoice
from rapport.domain.errors import Permanent
from rapport.domain.extras import ANTHROPIC, OLLAMA, require_extra

BUILTIN = "builtin"

NEEDS = {"openai": "", "anthropic": "ANTHROPIC_API_KEY", "ollama": ""}
"""The supported providers, and the environment variable that each requires."""

KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
ADDRESSES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "ollama": "OLLAMA_HOST"}
"""The environment variables with the key and the address of each provider."""

_EXTRAS = {"anthropic": (ANTHROPIC, "Anthropic"), "ollama": (OLLAMA, "Ollama")}


def make_model(
    name: str, *, timeout: float, environment: Mapping[str, str], choice: ModelChoice = SERVERS_MODEL
) -> BaseChatModel:
    """Return the model of this name with the options of `choice`; raise Permanent with what to set if it can't be made.

    The errors name `RAPPORT_MODEL`, or the agent's field `model` for a choice of an agent. The server's keys go only to
    the servers that the environment names: a choice with an address of its own also names its own key.

    Provider libraries are imported here and not at the top: each takes up to a second, and only one is used.
    """
    if name == BUILTIN:
        from rapport.builtin import BuiltinChatModel

        return BuiltinChatModel()
    provider, separator, model = name.partition(":")
    field = f"RAPPORT_MODEL={name!r}" if choice.is_servers else f"The agent's model {name!r}"
    if not separator or not model:
        raise Permanent(
            f"{field} is not a model. Use `builtin`, or provider:model such as `openai:gpt-5-mini`, "
            "`anthropic:claude-sonnet-4-5` or `ollama:qwen3`."
        )
    if provider not in NEEDS:
        raise Permanent(
            f"{field} names no provider that comes with Rapport; there are {', '.join(NEEDS)}. Any server"
            " that speaks OpenAI's API works as openai:<model> with OPENAI_BASE_URL."
        )
    if choice.base_url:
        environment = _use_own_server(provider, choice, environment)
    if (needed := NEEDS[provider]) and not environment.get(needed):
        raise Permanent(f"{field} can't be used: set {needed}.")
    if provider in _EXTRAS:
        extra, class_name = _EXTRAS[provider]
        subject = "RAPPORT_MODEL names" if choice.is_servers else "An agent's model is"
        require_extra(extra, f"{subject} an {class_name} model")
    try:
        if provider == "openai":
            from rapport.agents.openai import make_openai

            return make_openai(model, timeout=timeout, environment=environment, choice=choice)
        return _make_other_model(name, provider, timeout=timeout, choice=choice, environment=environment)
    except Exception as error:
        raise Permanent(f"{field} can't be used: {_get_first_line(error)}") from error


def _use_own_server(provider: str, choice: ModelChoice, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the agent's address and key in place of the server's."""
    if choice.key_variable and not environment.get(choice.key_variable):
        raise Permanent(f"The agent's model can't be used: set {choice.key_variable}, which it names as its key.")
    key = environment.get(choice.key_variable) or "none"
    own = {ADDRESSES[provider]: choice.base_url}
    if provider != "ollama":
        own[KEYS[provider]] = key
    return {**environment, **own}


def _make_other_model(
    name: str, provider: str, *, timeout: float, choice: ModelChoice, environment: Mapping[str, str]
) -> BaseChatModel:
    from langchain.chat_models import init_chat_model

    settings: dict[str, Any] = {"timeout": timeout, "max_retries": 0}
    if provider == "ollama":
        settings = {"client_kwargs": {"timeout": timeout}}  # it supports neither of the other parameters
    if choice.temperature is not None:
        settings["temperature"] = choice.temperature
    if choice.max_tokens is not None:
        settings["num_predict" if provider == "ollama" else "max_tokens"] = choice.max_tokens
    if choice.base_url:
        settings["base_url"] = choice.base_url
        if provider in KEYS:
            settings["api_key"] = environment[KEYS[provider]]
    return cast("BaseChatModel", init_chat_model(name, **settings))


def find_server(name: str, environment: Mapping[str, str]) -> str:
    """Return host and port of the server that the environment names for this model; empty for the provider's own."""
    address = environment.get(ADDRESSES.get(name.partition(":")[0], ""), "")
    return get_host(address)


def get_host(address: str) -> str:
    """Return host and port of an address, without a user's name."""
    return urlsplit(address if "://" in address else f"//{address}").netloc.rpartition("@")[2]


async def close_model(model: BaseChatModel) -> None:
    """Close the model's connections, if it has any."""
    close = getattr(model, "aclose", None)
    if close is not None:
        await close()


def _get_first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

"""Tell the operator why the model can't answer, and what to do about it (ADR 38).

A sentence names the setting that decides: a field or key variable of the agent where it has its own, otherwise the server's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rapport.agents.models import ADDRESSES, KEYS
from rapport.domain.model_problems import ModelSetup

_ADVICE = {
    "key_refused": "The key in {key} was refused by {server}. Put a valid key into .env and restart.",
    "no_credit": "The account of the key in {key} has no credit left. Add credit at the provider, or set another key or"
    " model{in_settings}.",
    "rate_limited": "The model server gets more requests from this account than it allows. Wait a moment and ask again; the"
    " provider can raise the limit.",
    "unknown_model": "The model server has no model “{name}”. Put one that it has into {field}{in_env} (and check the"
    " address in {address}){restart}.{pull}",
    "too_long": "What the model was given is longer than it can read. Send less at once, or set a model with a larger"
    " context in {field}.",
    "unreachable": "The model server can't be reached. Check that it runs and that {address} is its address{and_restart}.",
    "timeout": "The model gave no answer in time. Ask again; if it goes on, use a faster model, or larger"
    " RAPPORT_MODEL_TIMEOUT and RAPPORT_TURN_DEADLINE.",
    "server_error": "The model server failed with an error of its own. Ask again; if it goes on, look into its log.",
    "request_refused": "The model server refused the request. Its words are in the log with LOG_LEVEL=debug.",
    "malformed": "The model server's answer could not be read. Check that {address} is the address of its API.",
    "empty": "The model answered with nothing. Ask again; if it goes on, set another model in {field}.",
    "not_set_up": "The agent's model is not set up on this server: its provider's key or package is missing. `rapport doctor` says"
    " which.",
    "resting": "The model failed several times in this conversation and is left alone for two minutes. The answers before"
    " this one say what was wrong.",
    "budget": "This month's budget of tokens is used up: `rapport usage` shows whose. Raise the one of an owner with"
    " `rapport usage budget --user NAME TOKENS`, or that of the agent in its settings.",
    "retrieval": "The notes could not be searched, because the embedding model failed. `rapport doctor` says more.",
    "attempts": "The server tried several times to answer and was interrupted each time. Its log says why.",
}
_UNKNOWN = "The model failed. `rapport doctor` tries it, and its words are in the log with LOG_LEVEL=debug."

_NO_KEY = (
    "{server} wants a key, and the agent names none. Put the name of a variable such as CHEF_API_KEY into its field"
    " `model_options.key_variable` and the key under that name into .env, and restart."
)


def advise(problem: str, model: str | ModelSetup) -> str:
    """Return a sentence for the operator about a problem with this model; a name is that of the server's model."""
    setup = model if isinstance(model, ModelSetup) else ModelSetup(model)
    if problem == "not_set_up" and setup.missing and setup.agent_id:
        return f"The agent “{setup.agent_id}” can't answer. {setup.missing} Restart the server afterwards."
    text = _ADVICE.get(problem, _UNKNOWN)
    if problem == "key_refused" and setup.has_own_address and not setup.key_variable:
        text = _NO_KEY
    provider, _, name = setup.model.partition(":")
    agent = f"the agent “{setup.agent_id}”"
    own = setup.has_own_address
    field = f"the field `{'fallback_model' if setup.is_fallback else 'model'}` of {agent}"
    address = f"the field `model_options.base_url` of {agent}" if own else ADDRESSES.get(provider, "RAPPORT_MODEL")
    server = f"the model server of {agent}" if own else "the model server"
    own_key = f"{setup.key_variable or '`model_options.key_variable`'}, which {agent} names,"
    needs_restart = "" if own else ", and restart if you change the address" if setup.agent_id else ", and restart"
    return text.format(
        key=own_key if own else KEYS.get(provider, "RAPPORT_MODEL's key"),
        server=server if text is not _NO_KEY else server[0].upper() + server[1:],
        address=address,
        field=field if setup.agent_id else "RAPPORT_MODEL",
        in_env="" if setup.agent_id else " in .env",
        in_settings=f": the key in .env, the model in {field}" if setup.agent_id else " in .env and restart",
        restart=needs_restart,
        and_restart="" if own else ", and restart if you change that",
        name=name or setup.model,
        pull=f" `ollama pull {name}` gets it." if provider == "ollama" else "",
    )


def advise_about_reply(problem: Mapping[str, Any]) -> str:
    """Return the sentence about the problem in a reply's metadata."""
    return advise(problem["kind"], ModelSetup.read(problem))

"""Tell the operator why the model can't answer, and what to do about it (ADR 38)."""

from __future__ import annotations

from rapport.agents.models import ADDRESSES, KEYS

_ADVICE = {
    "key_refused": "The key in {key} was refused by the model server. Put a valid key into .env and restart.",
    "no_credit": "The account of the key in {key} has no credit left. Add credit at the provider, or set another key or"
    " model in .env and restart.",
    "rate_limited": "The model server gets more requests from this account than it allows. Wait a moment and ask again; the"
    " provider can raise the limit.",
    "unknown_model": "The model server has no model “{name}”. Put one that it has into RAPPORT_MODEL in .env (and check the"
    " address in {address}), and restart.{pull}",
    "too_long": "What the model was given is longer than it can read. Send less at once, or set a model with a larger"
    " context in RAPPORT_MODEL.",
    "unreachable": "The model server can't be reached. Check that it runs and that {address} is its address, and restart if"
    " you change that.",
    "timeout": "The model gave no answer in time. Ask again; if it goes on, use a faster model, or larger"
    " RAPPORT_MODEL_TIMEOUT and RAPPORT_TURN_DEADLINE.",
    "server_error": "The model server failed with an error of its own. Ask again; if it goes on, look into its log.",
    "request_refused": "The model server refused the request. Its words are in the log with LOG_LEVEL=debug.",
    "malformed": "The model server's answer could not be read. Check that {address} is the address of its API.",
    "empty": "The model answered with nothing. Ask again; if it goes on, set another model in RAPPORT_MODEL.",
    "not_set_up": "The agent's model is not set up on this server: its provider's key or package is missing. `rapport agents show` and"
    " the log say which.",
    "resting": "The model failed several times in this conversation and is left alone for two minutes. The answers before"
    " this one say what was wrong.",
    "budget": "This month's budget of tokens is used up: `rapport usage` shows whose. Raise the one of an owner with"
    " `rapport usage budget --user NAME TOKENS`, or that of the agent in its settings.",
    "retrieval": "The notes could not be searched, because the embedding model failed. `rapport doctor` says more.",
    "attempts": "The server tried several times to answer and was interrupted each time. Its log says why.",
}
_UNKNOWN = "The model failed. `rapport doctor` tries it, and its words are in the log with LOG_LEVEL=debug."


def advise(problem: str, model: str) -> str:
    """Return a sentence for the operator about a problem with the model of this name."""
    provider, _, name = model.partition(":")
    return _ADVICE.get(problem, _UNKNOWN).format(
        key=KEYS.get(provider, "RAPPORT_MODEL's key"),
        address=ADDRESSES.get(provider, "RAPPORT_MODEL"),
        name=name or model,
        pull=f" `ollama pull {name}` gets it." if provider == "ollama" else "",
    )

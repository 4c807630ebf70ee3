"""The agent: a LangGraph graph that answers one message with a bounded window of the conversation."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from rapport.agent.failures import ModelFailed, backoff, describe
from rapport.domain.event import FRESH

OnToken: TypeAlias = Callable[[str], None]

RETRIES = 2


class TurnState(TypedDict, total=False):
    """What a turn works on. `messages` is replaced whole, never appended to: a thread's cost stays flat."""

    system: str
    messages: list[BaseMessage]
    reply: AIMessage


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run needs and no checkpoint holds."""

    on_token: OnToken | None


class LangGraphAgent:
    """Runs a model over a window; safe to run again after a crash, because its nodes change nothing outside."""

    def __init__(self, model: BaseChatModel, saver: BaseCheckpointSaver[Any], *, deadline: float) -> None:
        self._model = model
        self._deadline = deadline
        builder = StateGraph(TurnState, context_schema=RunContext)
        builder.add_node("answer", self._answer)  # pyright: ignore[reportUnknownMemberType]
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        self.graph: Any = builder.compile(checkpointer=saver)  # pyright: ignore[reportUnknownMemberType]

    async def run(
        self,
        message: str | HumanMessage,
        *,
        thread_id: str,
        system: str,
        history: Sequence[BaseMessage] = (),
        on_token: OnToken | None = None,
        fresh: bool = False,
        tags: dict[str, str] | None = None,
    ) -> AIMessage:
        """The model's answer to `message`, given `history` before it. Tokens go to `on_token` as they come.

        Raises ModelFailed after the retries, or when the deadline has passed.
        """
        current = HumanMessage(message) if isinstance(message, str) else message
        config: RunnableConfig = {
            "configurable": {"thread_id": thread_id, FRESH: fresh},
            "metadata": dict(tags or {}),
        }
        try:
            async with asyncio.timeout(self._deadline):
                state = await self.graph.ainvoke(
                    TurnState(system=system, messages=[*history, current]),
                    config,
                    context=RunContext(on_token),
                    # One step long: there is nothing to resume in the middle of it, so one checkpoint at its end is
                    # all that is worth writing.
                    durability="exit",
                )
        except TimeoutError as error:
            raise ModelFailed("timeout", f"no answer within {self._deadline:g} s") from error
        return cast("AIMessage", state["reply"])

    async def ask(self, system: str, text: str) -> str:
        """One plain answer outside any turn. Raises ModelFailed."""
        try:
            async with asyncio.timeout(self._deadline):
                return str((await self._ask([SystemMessage(system), HumanMessage(text)], None)).text)
        except TimeoutError as error:
            raise ModelFailed("timeout", f"no answer within {self._deadline:g} s") from error

    async def _answer(self, state: TurnState, runtime: Runtime[RunContext]) -> TurnState:
        messages: list[BaseMessage] = [SystemMessage(state["system"]), *state["messages"]]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        return {"reply": await self._ask(messages, runtime.context.on_token)}

    async def _ask(self, messages: list[BaseMessage], on_token: OnToken | None) -> AIMessage:
        """One answer, with up to two retries where a retry can help (RES-2)."""
        for attempt in itertools.count(1):
            tokens = None if on_token is None else _Relay(on_token)
            try:
                if tokens is None:
                    return _checked(await self._model.ainvoke(messages))
                return await self._stream(messages, tokens)
            except Exception as error:  # noqa: BLE001 - a model may fail in any way it likes; the user gets one reply
                failure = error
            wait = backoff(failure, attempt) if attempt <= RETRIES else None
            if wait is None:
                raise ModelFailed(*describe(failure)) from failure
            if tokens is not None and tokens.relayed:
                # Somebody has read the beginning of this attempt: another one would not continue it, so it comes without
                # tokens, and the finished reply says how it really goes.
                on_token = None
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the loop returns or raises")

    async def _stream(self, messages: list[BaseMessage], on_token: OnToken) -> AIMessage:
        whole: AIMessageChunk | None = None
        async for chunk in self._model.astream(messages):
            whole = chunk if whole is None else whole + chunk
            if text := str(chunk.text):
                on_token(text)
        if whole is None:
            return _checked(AIMessage(""))
        return _checked(AIMessage(whole.content, usage_metadata=whole.usage_metadata, id=whole.id))


class _Relay:
    """Passes tokens on and remembers whether it did."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self.relayed = False

    def __call__(self, token: str) -> None:
        self.relayed = True
        self._on_token(token)


def _checked(reply: AIMessage) -> AIMessage:
    """The reply, unless there is nothing in it."""
    if not str(reply.text).strip():
        raise ModelFailed("empty", "the model answered with nothing")
    return reply

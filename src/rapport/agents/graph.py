"""The agent: a LangGraph graph that answers one message with a bounded window of the conversation.

Its nodes are recall → retrieve → model ⇄ tools. They have no lasting effects: the turn commits what they find and make, and a
call with an effect outside is recorded by the turn before it runs. So a run may be repeated after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import structlog
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from rapport.agents.call_usage import MeteredCall, OnCall, ignore_call
from rapport.agents.failures import ModelFailed, classify_failure
from rapport.agents.graph_run import Answer, Entry, FixedPrompt, Keep, Prompt, PromptSource, RunContext, TurnState
from rapport.agents.health import ModelHealth
from rapport.agents.model_client import ModelClient, OnToken, log_failure
from rapport.agents.model_record import ModelRecord
from rapport.agents.models import BUILTIN, close_model
from rapport.agents.tools.calls import has_calls, is_answered, is_quoted, make_real, make_repeatable
from rapport.agents.tools.recorded import Requests
from rapport.agents.tools.toolbox import Toolbox
from rapport.domain.event import FRESH
from rapport.domain.server_note import ServerNote, add_note
from rapport.domain.token_estimate import estimate_tokens
from rapport.domain.tool_names import is_outside_name

log = structlog.get_logger()

Form = TypeVar("Form", bound=BaseModel)

MIN_MESSAGES_TO_SHORTEN = 4
"""A prompt of fewer messages that is too long for the model is not asked again with half of them."""
MAX_ROUND_TOKENS = 24_000
"""When tool calls and results of a turn are longer, the model must answer."""
_NOT_CALLED = ServerNote(
    task="No tool was called just now. Answer without tools, and don't say that anything was done."
)


class LangGraphAgent:
    """Runs a model on a window of messages; safe to repeat after a crash, because its nodes have no lasting effects."""

    def __init__(
        self,
        model: BaseChatModel,
        saver: BaseCheckpointSaver[Any],
        *,
        deadline: float,
        health: ModelHealth | None = None,
        record: ModelRecord | None = None,
        name: str = "",
        server: str = "",
    ) -> None:
        """`name` is the model's, `server` its host and port; empty for the provider's own."""
        self.name = name
        self.server = server
        self._model = model
        self._saver = saver
        self._running = 0
        self._is_free = name == BUILTIN
        self.record = record or ModelRecord()
        self._client = ModelClient(model, self.record, name=name, is_free=self._is_free)
        self._forms: dict[type[BaseModel], Runnable[LanguageModelInput, dict[str, Any]]] = {}
        self._deadline = deadline
        self.health = health or ModelHealth()
        self._graphs: dict[tuple[Entry, bool], Any] = {}
        self.graph: Any = self._get_graph("recall", has_checkpoints=True)

    async def run(
        self,
        message: str | HumanMessage,
        *,
        thread_id: str,
        system: str = "",
        history: Sequence[BaseMessage] = (),
        on_token: OnToken | None = None,
        fresh: bool = False,
    ) -> Answer:
        """Return the model's answer to `message` after `history`, without searches and tools. Raise ModelFailed."""
        prompt = Prompt(message, system, history, on_token=on_token)
        answer = await self.run_turn(FixedPrompt(prompt), thread_id=thread_id, fresh=fresh, keep="end")
        assert answer is not None
        return answer

    async def run_turn(
        self,
        source: PromptSource,
        *,
        thread_id: str,
        tools: Toolbox | None = None,
        requests: Requests | None = None,
        on_call: OnCall = ignore_call,
        fresh: bool = False,
        keep: Keep = "nothing",
        tags: dict[str, str] | None = None,
        deadline_share: float = 1.0,
    ) -> Answer | None:
        """Return the model's answer to the prompt of `source`; None if the model was not to be asked.

        `tools` record what they are asked for in `requests`. `on_call` is called for each request to the model. With
        `fresh` there is no checkpoint of the thread. With a `deadline_share` below 1 the rest of the deadline is left to another
        model. Raise ModelFailed after the retries, or when the deadline has passed.
        """
        config: RunnableConfig = {"configurable": {"thread_id": thread_id, FRESH: fresh}, "metadata": dict(tags or {})}
        deadline = self._deadline * deadline_share
        context = RunContext(source, tools or Toolbox(), requests or Requests(), deadline, on_call)
        self._running += 1
        try:
            state = await self._invoke(config, context, keep, fresh=fresh)
        except ModelFailed as failure:
            self.health.record_failure(failure)
            raise
        finally:
            self._running -= 1
        if context.undecided:
            reply = AIMessage(context.rounds.text)
        elif (reply := state.get("reply")) is None:
            return None
        self.health.record_success()
        return Answer(
            reply,
            state.get("saved") or (),
            state.get("follow_up"),
            self.name,
            context.undecided,
            state.get("reminders") or (),
            state.get("refusals") or (),
        )

    async def _invoke(self, config: RunnableConfig, context: RunContext, keep: Keep, *, fresh: bool) -> TurnState:
        """Run the graph from its beginning, or from the last checkpoint of a run that keeps its steps."""
        if keep == "nothing":
            graph = self._get_graph(context.source.entry, has_checkpoints=False)
            return cast("TurnState", await graph.ainvoke({}, config, context=context) or {})
        graph = self._get_graph(context.source.entry, has_checkpoints=True)
        if keep == "end":
            return cast("TurnState", await graph.ainvoke({}, config, context=context, durability="exit") or {})
        start: Any = {}
        if not fresh:
            known = await graph.aget_state(config)
            if known.values and not known.tasks:  # `next` leaves out a task whose result is stored and not applied yet
                return cast("TurnState", known.values)
            if known.values:
                start = Command(resume=True) if known.interrupts else None
        return cast("TurnState", await graph.ainvoke(start, config, context=context, durability="sync") or {})

    def _get_graph(self, entry: Entry, *, has_checkpoints: bool) -> Any:
        """Return the graph that begins with this node. A node without work is left out by the choice of the entry."""
        if (graph := self._graphs.get((entry, has_checkpoints))) is None:
            builder: Any = StateGraph(TurnState, context_schema=RunContext)
            builder.add_node("recall", _recall)
            builder.add_node("retrieve", _retrieve)
            builder.add_node("model", self._call_model, destinations=("tools", END))
            builder.add_node("tools", self._use_tools, destinations=("model", END))
            builder.add_edge("recall", "retrieve")
            builder.add_edge("retrieve", "model")
            builder.add_edge(START, entry)
            graph = builder.compile(checkpointer=self._saver if has_checkpoints else None)
            self._graphs[entry, has_checkpoints] = graph
        return graph

    @property
    def is_idle(self) -> bool:
        """Return True if no turn waits for this model."""
        return self._running == 0

    async def close(self) -> None:
        """Close the model's connections."""
        await close_model(self._model)

    @property
    def calls_tools(self) -> bool:
        """Return True if the model may be offered tools."""
        return self._client.calls_tools

    async def decide(self, system: str, text: str, form: type[Form], *, on_call: OnCall = ignore_call) -> Form:
        """Return the model's decision in the given form. Raise ModelFailed, also if its answer does not have the form."""
        try:
            if (
                bound_model := self._forms.get(form)
            ) is None:  # cached: building the schema takes longer than the rest of a call
                structured: Any = self._model.with_structured_output(form, method="function_calling", include_raw=True)
                bound_model = self._forms[form] = cast("Runnable[LanguageModelInput, dict[str, Any]]", structured)
            messages: list[BaseMessage] = [SystemMessage(system), HumanMessage(text)]
            async with _limit_time(self._deadline, lambda: asyncio.get_running_loop().time() + self._deadline):
                with MeteredCall(self.name, messages, {}, on_call, is_free=self._is_free) as call:
                    result = await bound_model.ainvoke(messages)
                    call.received = result["raw"]
            if (refusal := result["parsing_error"]) is not None:
                raise refusal
        except Exception as error:  # noqa: BLE001 - a model may fail in any way it likes
            failure = log_failure(classify_failure(error))
            # A model without structured output may answer other requests well.
            self.health.count(failure)
            raise failure from None
        decision = result["parsed"]
        if not isinstance(decision, form):
            raise ModelFailed("malformed", "the model did not keep to the form it was given")
        return decision

    async def ask(self, system: str, text: str, *, on_call: OnCall = ignore_call) -> str:
        """Return one plain answer outside any turn. Raises ModelFailed."""
        try:
            async with _limit_time(self._deadline, lambda: asyncio.get_running_loop().time() + self._deadline):
                messages: list[BaseMessage] = [SystemMessage(system), HumanMessage(text)]
                asked = await self._client.ask(messages, None, on_call=on_call)
                return str(asked.message.text)
        except ModelFailed as failure:
            self.health.record_failure(failure)
            raise

    # ---- nodes

    async def _call_model(self, state: TurnState, runtime: Runtime[RunContext]) -> Command[Any]:
        """Ask the model; go on with its tool calls, or end with its reply."""
        context = runtime.context
        if not await context.begin(state):
            return Command(goto=END)
        prompt, requests = context.prompt, context.requests
        assert prompt is not None
        requests.unread_refusals = []  # the model reads them now
        done = list(state.get("rounds") or ())
        system, messages = prompt.system, prompt.messages
        if done:  # the prompt stays as it was when the calls were made
            system, messages = state.get("system", system), list(state.get("messages") or messages)
        async with _limit_time(context.deadline, lambda: context.ends_at):
            try:
                reply = await self._ask(_join(system, messages, prompt.note, done), context, done)
            except ModelFailed as failure:
                if failure.problem != "too_long" or len(messages) < MIN_MESSAGES_TO_SHORTEN:
                    raise
                log.warning("agent.prompt_shortened", reason=str(failure))
                messages = messages[len(messages) // 2 :]
                reply = await self._ask(_join(system, messages, prompt.note, done), context, done)
        update = TurnState(system=system, messages=messages, saved=requests.saved, reminders=requests.reminders)
        if not has_calls(reply):
            update["reply"], update["follow_up"] = context.rounds.join_rounds(reply), requests.follow_up
            update["refusals"] = requests.unread_refusals
            return Command(update=update, goto=END)
        update["rounds"] = [*done, reply]
        return Command(update=update, goto="tools")

    async def _ask(self, messages: list[BaseMessage], context: RunContext, done: Sequence[BaseMessage]) -> AIMessage:
        """Return the model's next message. It has tool calls only while it may still make some."""
        tools, rounds, on_call = context.tools, context.rounds, context.on_call
        try:
            if self.calls_tools and tools.schemas and _may_call(tools, done):
                asked = await self._client.ask_with_tools(messages, rounds.on_token, tools.schemas, on_call=on_call)
                needed = [call for call in asked.written if call.name in tools.names_with_results]
                made = [call for call in needed if not is_quoted(call, messages)]
                # A model that writes other calls as text is not offered tools any more.
                self.record.text_calls += bool(asked.written) and not any(is_outside_name(call.name) for call in needed)
                await tools.use_written(asked.written)
                if made and not has_calls(asked.message):
                    return make_real(made)
                if has_calls(asked.message):
                    self.record.tool_calls += 1
                    return asked.message
                if needed:  # its text may claim that they were made
                    messages = [*messages[:-1], add_note(messages[-1], _NOT_CALLED)]
                elif str(asked.message.text).strip():
                    return asked.message
            rounds.begin_last_round()
            last = (await self._client.ask(messages, rounds.on_token, on_call=on_call)).message
            return AIMessage(last.content, usage_metadata=last.usage_metadata, id=last.id) if has_calls(last) else last
        except ModelFailed as failure:
            if failure.kind != "empty" or not rounds.text:
                raise
            return AIMessage(rounds.text)  # all of its text was beside tool calls

    async def _use_tools(self, state: TurnState, runtime: Runtime[RunContext]) -> Command[Any]:
        """Run the model's calls. Stop here while a person must decide about one."""
        context, clock = runtime.context, asyncio.get_running_loop()
        if not await context.begin(state):
            return Command(goto=END)
        done = state["rounds"]  # pyright: ignore[reportTypedDictNotRequiredAccess] - the model's node has set it
        reply, earlier = cast("AIMessage", done[-1]), done[:-1]
        number = sum(isinstance(message, AIMessage) for message in earlier)
        context.undecided = await context.tools.find_undecided(reply, number=number, earlier=earlier)
        if context.undecided:
            context.rounds.end_round(str(reply.text))
            interrupt([call.key for call in context.undecided])
        began = clock.time()
        results = await context.tools.use(reply, number=number, earlier=earlier)
        context.allow_for_tools(clock.time() - began)
        requests = context.requests
        update = TurnState(rounds=[*done, *results], saved=requests.saved, follow_up=requests.follow_up)
        update["reminders"], update["refusals"] = requests.reminders, requests.unread_refusals
        if is_answered(reply, context.tools.names_with_results):
            update["reply"] = context.rounds.join_rounds(reply)
            return Command(update=update, goto=END)
        context.rounds.end_round(str(reply.text))
        return Command(update=update, goto="model")


async def _recall(_state: TurnState, runtime: Runtime[RunContext]) -> TurnState:
    return {"memories": list(await runtime.context.source.recall())}


async def _retrieve(_state: TurnState, runtime: Runtime[RunContext]) -> TurnState:
    return {"passages": list(await runtime.context.source.retrieve())}


def _may_call(tools: Toolbox, done: Sequence[BaseMessage]) -> bool:
    """Return True if the model may make another round of calls."""
    if not done:
        return True
    number = sum(isinstance(message, AIMessage) for message in done)
    return number < tools.max_rounds and sum(estimate_tokens(str(each.text)) for each in done) < MAX_ROUND_TOKENS


def _join(
    system: str, messages: Sequence[BaseMessage], note: ServerNote, done: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """Return the whole request: instructions, the window with the note in its newest message, and the rounds so far."""
    rounds = [make_repeatable(each) if isinstance(each, AIMessage) else each for each in done]
    return [SystemMessage(system), *messages[:-1], add_note(messages[-1], note), *rounds]


@asynccontextmanager
async def _limit_time(seconds: float, get_end: Callable[[], float]) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout_at(get_end()):
            yield
    except TimeoutError:
        raise ModelFailed("timeout", f"no answer within {seconds:g} s") from None

"""A chat model for OpenAI's API and compatible servers, with much less CPU time per call than the usual client."""

# LangChain annotates the methods that this module overrides and calls with bare dicts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar, Literal, TypeAlias, cast

import aiohttp
import httpx
import orjson
import structlog
from langchain_core.callbacks import AsyncCallbackManager, AsyncCallbackManagerForLLMRun, BaseCallbackManager
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.prompt_values import ChatPromptValue, PromptValue
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr, SecretStr

from rapport.agents.failures import ModelFailed
from rapport.agents.tools.calls import RawCall, set_calls
from rapport.domain.agent_profile import SERVERS_MODEL, ModelChoice

log = structlog.get_logger()

_DATA = b"data:"
_DONE = b"[DONE]"
UsageOption: TypeAlias = Literal["untried", "taken", "refused"]
"""Whether the server takes a request for the usage of a streamed answer."""
_REFUSALS = frozenset({400, 422})
"""Status codes by which servers refuse an option that they don't know without naming it."""
_USAGE_SIGNS = ("stream_options", "include_usage")
END_SECONDS = 0.5
"""Seconds to wait for the end of a response whose answer is complete."""


class ProviderError(Exception):
    """The provider answered with an error, by its status or in the middle of a stream."""

    def __init__(self, status_code: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(" ".join(_message_in(text).split())[:300] or f"HTTP {status_code}")
        self.status_code = status_code
        # LangChain's tracing reads the response of an error like one of httpx.
        self.response = httpx.Response(status_code, headers=dict(headers or {}), text=text)


def _message_in(text: str) -> str:
    """Return the message of an error's body. The rest of the body may quote the request and must not be logged."""
    try:
        body: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    if isinstance(body, dict):
        body = body.get("error") or body.get("message") or body.get("detail")
    if isinstance(body, dict):
        body = body.get("message")
    return body if isinstance(body, str) else ""


class LeanChatOpenAI(ChatOpenAI):
    """ChatOpenAI that sends chat completions as JSON over aiohttp, without OpenAI's SDK.

    LangChain builds the request and reads the response. The SDK between them checks every field of every message against
    its type hints and builds typed objects that LangChain turns into dicts again: four fifths of a call's CPU time, and
    five sixths of a stream's. Other kinds of requests (structured output, the responses API) still use the SDK.
    """

    silence: float
    """The longest time-out between two bytes of an answer."""
    takes_no_tool_choice: ClassVar[bool] = True
    """It takes the tool choice "none": other classes of LangChain take it for the name of a tool."""

    _session: aiohttp.ClientSession | None = PrivateAttr(default=None)
    _usage_option: UsageOption = PrivateAttr(default="untried")

    async def ainvoke(
        self,
        input: LanguageModelInput,  # noqa: A002 - its name in LangChain
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Skip LangChain's callback bookkeeping when no handler is registered."""
        messages = self._convert_input(input).to_messages()
        # Messages with pictures use LangChain's way, which converts their format.
        if self._has_handlers(config) or not all(isinstance(message.content, str) for message in messages):
            return await super().ainvoke(messages, config, stop=stop, **kwargs)
        kwargs.pop("ls_structured_output_format", None)  # only callbacks need it
        result = await self._agenerate(messages, stop, **kwargs)
        answer = result.generations[0]
        facts = {**(result.llm_output or {}), **(answer.generation_info or {})}
        answer.message.response_metadata = {**facts, **answer.message.response_metadata}
        return cast("AIMessage", answer.message)

    def _has_handlers(self, config: RunnableConfig | None) -> bool:
        """Return True if anybody listens to this call: a handler of the call, of the graph around it, or a tracer."""
        inherited = (config or var_child_runnable_config.get() or {}).get("callbacks")
        if isinstance(inherited, BaseCallbackManager) and not self.callbacks:
            return bool(inherited.handlers)  # the graph has looked for tracers
        callbacks = ensure_config(config).get("callbacks")
        return bool(AsyncCallbackManager.configure(callbacks, self.callbacks, self.verbose).handlers)

    def _convert_input(self, model_input: LanguageModelInput) -> PromptValue:
        """Skip the validation of messages that are messages already."""
        if isinstance(model_input, list) and all(isinstance(message, BaseMessage) for message in model_input):
            return ChatPromptValue.model_construct(messages=model_input)
        return super()._convert_input(model_input)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        payload: dict[str, Any] = self._get_request_payload(messages, stop=stop, **kwargs)
        if "response_format" in payload or self._use_responses_api(payload):
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        async with self._post(payload) as response:
            answer = orjson.loads(await response.read())
        if not answer.get("choices"):
            raise ModelFailed("empty", "the model answered with nothing")
        if (usage := _take_usage(answer)) is not None:
            answer["usage"] = usage
        calls = _take_calls(answer["choices"][0])
        result = self._create_chat_result(answer)
        set_calls(cast("AIMessage", result.generations[0].message), calls)
        return result

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        stream_usage: bool | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        options = {**kwargs, "stream": True}
        if self._should_stream_usage(stream_usage, **options):
            options["stream_options"] = {"include_usage": True}
        payload: dict[str, Any] = self._get_request_payload(messages, stop=stop, **options)
        if "response_format" in payload or self._use_responses_api(payload):
            async for chunk in super()._astream(messages, stop, run_manager, stream_usage=stream_usage, **kwargs):
                yield chunk
            return
        is_complete = False
        usage: dict[str, Any] | None = None
        async with self._post_stream(payload) as response:
            async for frame in _read_frames(response):
                if frame is None:
                    is_complete = True
                    continue
                usage = _take_usage(frame) or usage
                is_complete = is_complete or any(choice.get("finish_reason") for choice in frame.get("choices") or ())
                for choice in frame.get("choices") or ():
                    _calls_in(choice, "delta")
                chunk = self._convert_chunk_to_generation_chunk(frame, AIMessageChunk, None)
                if chunk is not None:
                    yield chunk
        if usage is not None:  # once: some servers send the sum so far with every chunk, which LangChain would add up
            last = self._convert_chunk_to_generation_chunk({"choices": [], "usage": usage}, AIMessageChunk, None)
            yield cast("ChatGenerationChunk", last)
        if not is_complete:
            raise ConnectionError("the model's answer broke off")

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Return LangChain's payload. LangChain inspects every character of a message, so plain texts are inserted here."""
        messages = self._convert_input(input_).to_messages()
        payload: dict[str, Any] = super()._get_request_payload([_PLACEHOLDER], stop=stop, **kwargs)
        if "messages" not in payload or not all(_is_plain(message) for message in messages):
            return super()._get_request_payload(messages, stop=stop, **kwargs)
        roles = {**_ROLES, "system": payload["messages"][0]["role"]}  # some models call it another way
        payload["messages"] = [{"role": roles[message.type], "content": message.content} for message in messages]
        return payload

    @asynccontextmanager
    async def _post(self, payload: dict[str, Any]) -> AsyncGenerator[aiohttp.ClientResponse]:
        session = self.make_session()
        async with session.post(f"{self.openai_api_base}/chat/completions", data=_as_json(payload)) as response:
            if response.status >= 400:
                raise ProviderError(response.status, await response.text(errors="replace"), response.headers)
            yield response

    @asynccontextmanager
    async def _post_stream(self, payload: dict[str, Any]) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Post a request for a stream. A server that refuses to tell the usage of a stream is not asked for it again."""
        if self._usage_option == "refused":
            payload.pop("stream_options", None)
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(self._post(payload))
            except ProviderError as error:
                if "stream_options" not in payload or not self._may_refuse_usage(error, payload):
                    raise
                del payload["stream_options"]
                response = await stack.enter_async_context(self._post(payload))
                self._usage_option = "refused"
                log.info("model.no_stream_usage", status=error.status_code)
            else:
                if "stream_options" in payload:
                    self._usage_option = "taken"
            yield response

    def _may_refuse_usage(self, error: ProviderError, payload: Mapping[str, Any]) -> bool:
        """Return True if the error names the request for usage, or if a server that is new to us names nothing of the request."""
        text = error.response.text
        if any(sign in text for sign in _USAGE_SIGNS):
            return True
        names_another = any(name in text for name in payload.keys() - {"stream", "stream_options"})
        return self._usage_option == "untried" and error.status_code in _REFUSALS and not names_another

    def make_session(self) -> aiohttp.ClientSession:
        """Return the model's HTTP session, which is made at the first request."""
        if self._session is None:
            assert isinstance(self.openai_api_key, SecretStr)
            self._session = aiohttp.ClientSession(
                # No total limit: a long answer may take long (the turn has a deadline). A silent connection may not.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=self.silence),
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={
                    "Authorization": f"Bearer {self.openai_api_key.get_secret_value()}",
                    "Content-Type": "application/json",
                },
                # aiohttp then reads proxies and netrc in a thread for every request: only if a proxy is used at all.
                trust_env=_uses_proxy(self.openai_api_base or ""),
            )
        return self._session

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _uses_proxy(url: str) -> bool:
    """Return True if the environment names a proxy for this address."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.hostname or "")


_PLACEHOLDER = SystemMessage("")
_ROLES = {"human": "user", "ai": "assistant"}


def _is_plain(message: BaseMessage) -> bool:
    """Return True if this is a message of the system, a person or the model with only text."""
    if message.name or not isinstance(message.content, str):
        return False
    if isinstance(message, AIMessage):
        return not (message.tool_calls or message.invalid_tool_calls or message.additional_kwargs)
    return message.type in ("system", "human") and "name" not in message.additional_kwargs


def _take_calls(choice: Any) -> list[RawCall]:
    """Remove the tool calls from a choice, and return them.

    LangChain reads the arguments less strictly, and raises an error for those that are JSON but no object.
    """
    calls = _calls_in(choice, "message")
    functions = [(call, call["function"]) for call in calls if isinstance(call.get("function"), dict)]
    calls.clear()
    return [
        RawCall(call.get("id"), str(function.get("name") or ""), function.get("arguments") or "")
        for call, function in functions
    ]


def _calls_in(choice: Any, part: str) -> list[dict[str, Any]]:
    """Return the tool calls of a choice. Arguments that are not text are converted to JSON text."""
    message: Any = choice.get(part) if isinstance(choice, dict) else None
    calls: Any = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list):
        return []
    for call in calls:
        function: Any = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and not isinstance(function.get("arguments"), str | None):
            function["arguments"] = json.dumps(function["arguments"])
    return cast("list[dict[str, Any]]", calls)


def _take_usage(answer: dict[str, Any]) -> dict[str, Any] | None:
    """Remove the usage of an answer or a chunk, and return it if LangChain can read it: a wrong one must not cost the answer."""
    value: Any = answer.pop("usage", None)
    if not isinstance(value, dict):
        return None
    usage = cast("dict[str, Any]", value)
    counts = (usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
    details = (usage.get(name) for name in ("prompt_tokens_details", "completion_tokens_details"))
    is_sound = all(count is None or type(count) is int for count in counts) and all(
        detail is None or isinstance(detail, dict) for detail in details
    )
    return usage if is_sound and usage else None


def _as_json(payload: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(payload)
    except orjson.JSONEncodeError:  # arguments of a tool call may contain half of a surrogate pair
        return json.dumps(payload).encode()


async def _read_frames(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any] | None]:
    """Yield the chunks of a streamed answer, and None at its explicit end. Raise ProviderError for an error in it."""
    async for line in response.content:
        if not line.startswith(_DATA):
            continue
        if (data := line[len(_DATA) :].strip()) == _DONE:
            await _rest(response)
            yield None
            return
        yield _sound(orjson.loads(data))


async def _rest(response: aiohttp.ClientResponse) -> None:
    """Read the response to its end, for END_SECONDS at most, so that the connection can be reused."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            async for _ in response.content:
                pass


def _sound(chunk: dict[str, Any]) -> dict[str, Any]:
    """Return the chunk; raise ProviderError if it is an error, which makes the streamed text incomplete."""
    error: Any = chunk.get("error")
    if not error:
        return chunk
    details = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    status = details.get("code")
    raise ProviderError(status if isinstance(status, int) else 503, json.dumps({"error": details}))


def make_openai(
    model: str, *, timeout: float, environment: Mapping[str, str], choice: ModelChoice = SERVERS_MODEL
) -> ChatOpenAI:
    """Return a chat model for OpenAI's API or, with `OPENAI_BASE_URL`, for a compatible server."""
    key = environment.get("OPENAI_API_KEY")
    base_url = environment.get("OPENAI_BASE_URL")
    if not key and not base_url:
        raise ValueError("set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own.")
    return LeanChatOpenAI(
        model=model,
        api_key=SecretStr(key or "none"),  # most local servers need none
        base_url=(base_url or "https://api.openai.com/v1").rstrip("/"),
        timeout=timeout,
        silence=timeout,
        stream_usage=True,
        max_retries=0,
        temperature=choice.temperature,
        max_tokens=choice.max_tokens,  # pyright: ignore[reportCallIssue]
    )

"""OpenAI and everything that speaks its API, at a third of the client's usual cost per call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import openai
import orjson
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_openai import ChatOpenAI
from pydantic import SecretStr


class LeanChatOpenAI(ChatOpenAI):
    """ChatOpenAI that hands finished JSON to the SDK and takes JSON back.

    The SDK walks every field of every message against its type hints, to translate names that messages don't have, and
    builds typed objects that LangChain turns into a dict again, in a thread: together two thirds of a call's time with
    a 12-message window. Requests of other kinds (structured output, the responses API) go the usual way.
    """

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        payload = super()._get_request_payload(messages, stop=stop, **kwargs)
        if "response_format" in payload or self._use_responses_api(payload):
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        response = await self.root_async_client.post("/chat/completions", body=payload, cast_to=httpx2.Response)
        return self._create_chat_result(orjson.loads(response.content))

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if "messages" in payload:  # what stands in `extra_body` is merged as it is
            payload["extra_body"] = {**(payload.get("extra_body") or {}), "messages": payload["messages"]}
            payload["messages"] = []
        return payload


def make_openai(model: str, *, timeout: float, environment: Mapping[str, str]) -> ChatOpenAI:
    """A chat model on OpenAI's API or, with `OPENAI_BASE_URL`, on any server that speaks it."""
    key = environment.get("OPENAI_API_KEY")
    base_url = environment.get("OPENAI_BASE_URL")
    if not key and not base_url:
        raise ValueError("set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own.")
    return LeanChatOpenAI(
        model=model,
        api_key=SecretStr(key or "none"),  # servers on one's own machine mostly want none, the SDK insists on one
        base_url=base_url or None,
        timeout=timeout,
        max_retries=0,
        http_async_client=openai.DefaultAioHttpClient(timeout=timeout),
    )

"""The built-in model as LangChain sees it."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from typing_extensions import override

from rapport.builtin.respond import reply_to

DEADLINE_SECONDS = 10.0
"""A reply takes milliseconds; one that takes this long is given up."""

_PIECE = re.compile(r"\s*\S+|\s+")
_THREADS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="builtin-model")


class BuiltinChatModel(BaseChatModel):
    """A chat model that needs no weights, no key and no network: a pure, instant function of its messages."""

    @property
    @override
    def _llm_type(self) -> str:
        return "rapport-builtin"

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = AIMessage(content=_reply(messages, stop), response_metadata={"model_name": "builtin"})
        return ChatResult(generations=[ChatGeneration(message=message)])

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = AIMessage(content=await _reply_off_loop(messages, stop), response_metadata={"model_name": "builtin"})
        return ChatResult(generations=[ChatGeneration(message=message)])

    @override
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for piece in _PIECE.findall(_reply(messages, stop)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if run_manager:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in _PIECE.findall(await _reply_off_loop(messages, stop)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if run_manager:
                await run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk


async def _reply_off_loop(messages: list[BaseMessage], stop: list[str] | None) -> str:
    """Return the reply, made in a thread; raise TimeoutError after the deadline.

    `window.read` bounds the text, so that no single match holds the interpreter for long; the deadline is the second line.
    """
    made = asyncio.get_running_loop().run_in_executor(_THREADS, _reply, messages, stop)
    return await asyncio.wait_for(made, DEADLINE_SECONDS)


def _reply(messages: list[BaseMessage], stop: list[str] | None) -> str:
    text = reply_to(messages)
    for sequence in stop or ():
        if sequence:
            text = text.split(sequence, 1)[0]
    return text

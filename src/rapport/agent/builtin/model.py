"""The built-in model as LangChain sees it."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from typing_extensions import override

from rapport.agent.builtin.replies import reply_to

_PIECE = re.compile(r"\s*\S+|\s+")


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
        # Quick enough to run on the loop: a thread would cost more than the answer.
        return self._generate(messages, stop)

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
        for piece in _PIECE.findall(_reply(messages, stop)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if run_manager:
                await run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk


def _reply(messages: list[BaseMessage], stop: list[str] | None) -> str:
    text = reply_to(messages)
    for sequence in stop or ():
        if sequence:
            text = text.split(sequence, 1)[0]
    return text

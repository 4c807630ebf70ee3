"""The one place that says whether a message was made by the system itself (AUTO-5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class HasMetadata(Protocol):
    """Anything that carries LangChain's `additional_kwargs`."""

    @property
    def additional_kwargs(self) -> Mapping[str, Any]: ...


def is_synthetic(message: HasMetadata) -> bool:
    """True for exactly the tag `synthetic is True`; content is never looked at, `"true"` and `1` are real messages."""
    return message.additional_kwargs.get("synthetic") is True

"""Decide whether a message was created by the system itself (AUTO-5). No other module does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class HasMetadata(Protocol):
    """Anything that carries LangChain's `additional_kwargs`."""

    @property
    def additional_kwargs(self) -> Mapping[str, Any]: ...


def is_synthetic(message: HasMetadata) -> bool:
    """Return True only for the tag `synthetic is True`. The content never counts; `"true"` and `1` are real messages."""
    return message.additional_kwargs.get("synthetic") is True

"""The built-in chat model: no weights, no key, no network, and honest about it."""

from rapport.builtin.model import BuiltinChatModel

__all__ = ["BuiltinChatModel"]

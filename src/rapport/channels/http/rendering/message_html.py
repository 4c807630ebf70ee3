"""Render messages with their content as HTML, and cache the HTML."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeAlias

from rapport.channels.http.rendering.json_views import message_view
from rapport.channels.http.rendering.markdown import MAX_WORK, render_html, render_plain
from rapport.channels.markdown_work import estimate_work
from rapport.domain.conversation import Message

MAX_CACHED_CHARACTERS = 4_000_000
"""Characters of texts and their HTML that are cached: some thousand messages."""
MAX_CHARACTERS_PER_REQUEST = 300_000
"""Characters of one request that are formatted, more than a page of messages has. The rest is shown without formatting."""
MAX_WORK_PER_REQUEST = 30_000
"""Work of one request, as `estimate_work` counts it: half a second at most."""

_Key: TypeAlias = tuple[str, tuple[str, ...], tuple[str, ...] | None]


class Renderer:
    """Render messages, with a cache of their HTML."""

    def __init__(self, *, max_cached: int = MAX_CACHED_CHARACTERS) -> None:
        self._made: OrderedDict[_Key, str] = OrderedDict()  # least recently used first
        self._kept = 0
        self._max_cached = max_cached

    async def view(self, message: Message, *, operator: bool = False) -> dict[str, Any]:
        """Return a message for its owner, with `html`."""
        return (await self.views([message], operator=operator))[0]

    async def views(self, messages: Sequence[Message], *, operator: bool = False) -> list[dict[str, Any]]:
        """Return messages for their owner, each with `html`. A thread renders them, so that the event loop stays free."""
        keys = [_key(message) for message in messages]
        missing = [key for key in dict.fromkeys(keys) if key not in self._made]
        rendered = await asyncio.to_thread(_render, missing) if missing else {}
        shown = {key: rendered[key] if key in rendered else self._recall(key) for key in keys}
        for key, html in rendered.items():
            self._remember(key, html)
        views = (message_view(message, operator=operator) for message in messages)
        return [{**view, "html": shown[key]} for view, key in zip(views, keys, strict=True)]

    def _recall(self, key: _Key) -> str:
        # Another request may have evicted it while this one waited.
        html = self._made.get(key) or render_html(key[0], sources=key[1], links=key[2])
        if key in self._made:
            self._made.move_to_end(key)
        return html

    def _remember(self, key: _Key, html: str) -> None:
        size = len(key[0]) + len(html)
        if key in self._made or size > self._max_cached:
            return
        self._made[key] = html
        self._kept += size
        while self._kept > self._max_cached:
            (text, *_), evicted_html = self._made.popitem(last=False)
            self._kept -= len(text) + len(evicted_html)

    def __len__(self) -> int:
        return len(self._made)


def _render(keys: Sequence[_Key]) -> dict[_Key, str]:
    rendered: dict[_Key, str] = {}
    characters_left, work_left = MAX_CHARACTERS_PER_REQUEST, MAX_WORK_PER_REQUEST
    for key in reversed(keys):  # the latest first: they are in view
        text, sources, links = key
        work = min(estimate_work(text), MAX_WORK)  # a text with more is not parsed at all
        is_enough = len(text) <= characters_left and work <= work_left
        rendered[key] = render_html(text, sources=sources, links=links) if is_enough else render_plain(text)
        characters_left -= len(text)
        work_left -= work
    return rendered


def _key(message: Message) -> _Key:
    """Return the cache key of the HTML. Only a reply has sources: a tag that somebody else typed is no citation."""
    if message.role != "assistant":
        return message.text, (), None
    return message.text, tuple(source["id"] for source in message.sources), tuple(message.metadata.get("links", ()))

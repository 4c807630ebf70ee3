"""Messages with their words as HTML, made once for those who look at the same ones again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeAlias

from rapport.channels.http.rendering.json_views import message_view
from rapport.channels.http.rendering.markdown import MOST_WORK, as_html, as_it_stands
from rapport.channels.markdown_work import estimate_work
from rapport.domain.conversation import Message

MOST_KEPT = 4_000_000
"""Characters of texts and their HTML that are remembered: some thousand messages."""
MOST_AT_ONCE = 300_000
"""Characters of one request that are formatted; the rest of them is shown as it stands. More than a page of messages has."""
MOST_WORK_AT_ONCE = 30_000
"""And so much work, as `work_of` counts it: half a second at most."""

_Key: TypeAlias = tuple[str, tuple[str, ...]]


class Renderer:
    """Shows messages; remembers what they came to."""

    def __init__(self, *, most_kept: int = MOST_KEPT) -> None:
        self._made: OrderedDict[_Key, str] = OrderedDict()  # the one used last is the last
        self._kept = 0
        self._most_kept = most_kept

    async def view(self, message: Message, *, operator: bool = False) -> dict[str, Any]:
        """A message for its owner, with `html`."""
        return (await self.views([message], operator=operator))[0]

    async def views(self, messages: Sequence[Message], *, operator: bool = False) -> list[dict[str, Any]]:
        """Messages for their owner, each with `html`. It is made beside the loop: a long text doesn't hold up the others."""
        keys = [_key(message) for message in messages]
        missing = [key for key in dict.fromkeys(keys) if key not in self._made]
        made = await asyncio.to_thread(_render, missing) if missing else {}
        shown = {key: made[key] if key in made else self._recall(key) for key in keys}
        for key, html in made.items():
            self._remember(key, html)
        views = (message_view(one, operator=operator) for one in messages)
        return [{**view, "html": shown[key]} for view, key in zip(views, keys, strict=True)]

    def _recall(self, key: _Key) -> str:
        # Another request may have pushed it out while this one waited.
        html = self._made.get(key) or as_html(key[0], sources=key[1])
        if key in self._made:
            self._made.move_to_end(key)
        return html

    def _remember(self, key: _Key, html: str) -> None:
        size = len(key[0]) + len(html)
        if key in self._made or size > self._most_kept:
            return
        self._made[key] = html
        self._kept += size
        while self._kept > self._most_kept:
            (text, _), gone = self._made.popitem(last=False)
            self._kept -= len(text) + len(gone)

    def __len__(self) -> int:
        return len(self._made)


def _render(keys: Sequence[_Key]) -> dict[_Key, str]:
    made: dict[_Key, str] = {}
    left, work_left = MOST_AT_ONCE, MOST_WORK_AT_ONCE
    for key in reversed(keys):  # the latest first: they are what is looked at
        text, sources = key
        work = min(estimate_work(text), MOST_WORK)  # of more it is none: it is shown as it stands
        is_enough = len(text) <= left and work <= work_left
        made[key] = as_html(text, sources=sources) if is_enough else as_it_stands(text)
        left -= len(text)
        work_left -= work
    return made


def _key(message: Message) -> _Key:
    """Return the cache key of the HTML. Only a reply has sources: a tag that somebody else typed is no citation."""
    sources = (source["id"] for source in message.sources) if message.role == "assistant" else ()
    return message.text, tuple(sources)

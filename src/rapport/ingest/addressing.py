"""Whether a message is meant for the agent (CTX-9): by what it says, and by what its channel says of it."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Sequence

from rapport.domain.agent_profile import AgentProfile

_TICKS = re.compile(r"`+")
_BLANK_LINE = re.compile(r"\n[ \t\r]*(?=\n)")
_FENCE = 3
"""So many backticks can hold several paragraphs."""
_QUOTED_LINE = re.compile(r"^[ \t]{0,3}>.*$", re.MULTILINE)


def addressed_agents(text: str, mentioned: Sequence[str], agents: Iterable[AgentProfile]) -> list[str]:
    """The ids of those agents that a message addresses: in its words, or as somebody whom its channel names.

    `mentioned` are ids or names as the channel has them, with or without an @ before them.
    """
    named = {name.removeprefix("@").casefold() for name in mentioned}
    own = own_words(text) if "@" in text else ""
    return [
        agent.id
        for agent in agents
        if named & {name.casefold() for name in (agent.id, *agent.handles)} or ("@" in own and mentions(own, agent))
    ]


def mentions(text: str, agent: AgentProfile) -> bool:
    """Whether the text holds an @mention of one of the agent's handles, or a command for it, in any case, as a word of
    its own."""
    handles = "|".join(re.escape(handle) for handle in agent.handles)
    # Not inside a word or an address ("me@bot.example"), nor the beginning of a longer handle ("@bottle", "@bot_2").
    # A command, `/ask@bot`, is one too: in front of its @ stands what it is called, and in front of that nothing.
    return (
        re.search(rf"(?:(?<![\w@./])|(?<!\S)/\w{{1,64}})@(?:{handles})(?![\w-]|\.\w)", text, re.IGNORECASE) is not None
    )


def own_words(text: str) -> str:
    """The text without its quoted lines and without code: who quotes "> @bot help", or writes `@bot` to say how it is
    called, talks about the agent and not to it."""
    return _QUOTED_LINE.sub("", _without_code(text))


def _without_code(text: str) -> str:
    """What is between backticks is code, if there are as many after it as before it; others are just backticks.

    It doesn't begin within a word (it`s) and, but for a fence, ends with its paragraph.
    """
    runs = list(_TICKS.finditer(text))
    closing = _closing(text, runs)
    kept: list[str] = []
    number = end = 0
    while number < len(runs):
        begin = runs[number].start()
        if (close := closing[number]) is None or _is_word(text[begin - 1 : begin]):
            number += 1
            continue
        kept += [text[end:begin], " "]
        end = runs[close].end()
        number = close + 1
    return "".join([*kept, text[end:]])


def _closing(text: str, runs: Sequence[re.Match[str]]) -> list[int | None]:
    """Of each run of backticks, which of those after it ends what it begins: the next one of its length."""
    breaks = [found.start() for found in _BLANK_LINE.finditer(text)]
    closing: list[int | None] = [None] * len(runs)
    latest: dict[tuple[int, int], int] = {}
    for number in reversed(range(len(runs))):  # so that the next one is known already
        length = len(runs[number].group())
        paragraph = 0 if length >= _FENCE else bisect(breaks, runs[number].start())
        closing[number] = latest.get((length, paragraph))
        latest[length, paragraph] = number
    return closing


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"

"""Choose and shape words: fixed sentences from a data file, short quotations, clean endings."""

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from rapport.builtin.prompt import Prompt

PHRASES: dict[str, Any] = tomllib.loads((resources.files(__package__ or "") / "phrases.toml").read_text("utf-8"))
_ABOUT: dict[str, str] = PHRASES["about"]
_ENDS = (".", "!", "?", "…", "。", "！", "？")
_ROUND = str.maketrans("[]【】［］", "()()()")


class Phrasebook:
    """Picks among phrasings in their order; repeats none while another is left unused in this window."""

    def __init__(self, prompt: Prompt) -> None:
        self._said = prompt.replies
        # A group reads about its operator, because most of its members can't change the model.
        self._about = {**_ABOUT, "switch": _ABOUT["operator"]} if prompt.is_group else _ABOUT

    def pick(self, phrasings: Sequence[str], **filling: str) -> str:
        """Return the first of the templates that was not used yet, else the one used longest ago, filled."""
        return min(phrasings, key=self._find_last_use).format_map({**self._about, **filling})

    def _find_last_use(self, template: str) -> int:
        """Return how recently the template was used: 0 for never, rising to the newest reply."""
        fixed = max((part.rpartition("}")[2] for part in template.split("{")), key=len).strip()
        return max((number for number, text in enumerate(self._said, 1) if fixed and fixed in text), default=0)


def clip(text: str, limit: int = 120) -> str:
    """Return somebody's words on one line, cut at a word, without anything that reads as a citation or a fence."""
    flat = " ".join(text[: 8 * limit].replace("<<<", " ").replace(">>>", " ").translate(_ROUND).split())
    if len(flat) <= limit:
        return flat
    cut = flat[:limit]
    at_word = cut.rpartition(" ")[0]
    return (at_word if len(at_word) > limit // 2 else cut).rstrip(" ,;:-") + "…"


def quote(text: str, limit: int = 120) -> str:
    """Return somebody's words between quotation marks, ended as a sentence."""
    return f"“{finish_sentence(clip(text, limit).replace('“', '‘').replace('”', '’'))}”"


def finish_sentence(text: str) -> str:
    """Return the text with a full stop if it has no end."""
    text = text.rstrip(" ,;:-")
    return text if text.endswith(_ENDS) else f"{text}."


def capitalise(text: str) -> str:
    """Return the text with a capital at its beginning."""
    return text[:1].upper() + text[1:]

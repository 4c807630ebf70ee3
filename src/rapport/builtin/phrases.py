"""Choose and shape words: fixed sentences from a data file, short quotations, clean endings."""

import tomllib
from collections.abc import Sequence
from hashlib import blake2b
from importlib import resources
from typing import Any

from rapport.builtin.prompt import Prompt

PHRASES: dict[str, Any] = tomllib.loads(
    (resources.files("rapport") / "builtin" / "phrases.toml").read_text(encoding="utf-8")
)
_ABOUT: dict[str, str] = PHRASES["about"]
_ENDS = (".", "!", "?", "…", "。", "！", "？")
_ROUND = str.maketrans("[]【】［］", "()()()")


class Phrasebook:
    """Picks among phrasings by what the conversation says; repeats none while another is left unused."""

    def __init__(self, prompt: Prompt) -> None:
        text = "\n".join(turn.text for turn in prompt.turns)
        self._seed = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self._said = prompt.replies
        # A group reads about its operator, because most of its members can't change the model.
        self._about = {**_ABOUT, "switch": _ABOUT["operator"]} if prompt.is_group else _ABOUT

    def pick(self, phrasings: Sequence[str], **filling: str) -> str:
        """Return one of the templates, filled: one that was not said in this window, else the one said longest ago."""
        start = int.from_bytes(self._seed, "big") % len(phrasings)
        template = min([*phrasings[start:], *phrasings[:start]], key=self._find_last_use)
        return template.format_map({**self._about, **filling})

    def pick_once(self, first: Sequence[str], later: Sequence[str]) -> str:
        """Return one of `first`, or one of `later` if the person was told already that this is a demo model."""
        return self.pick(later if any("demo model" in reply for reply in self._said) else first)

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

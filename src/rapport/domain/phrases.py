"""Load the words and phrases of the language rules: one TOML file a language, in the folder `data` of a package.

A phrase is text in small letters without accents. `(a|b)`, `?` and `[…]` mean what they mean in a pattern; `…` stands for up to
four words; `<name>` stands for the text of that name in the table `parts` of the same file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from rapport.domain.patterns import Pattern, compile_linear

_GAP: Final = "(?:[a-z0-9',-]+ ){0,4}"
_PART: Final = re.compile(r"<(\w+)>")


@cache
def load_languages(package: str) -> Mapping[str, Mapping[str, Any]]:
    """Return what each language's file in the package's `data` folder holds, English first."""
    found = {file.name.removesuffix(".toml"): file for file in (files(package) / "data").iterdir()}
    names = sorted(
        (name for name in found if found[name].name.endswith(".toml")), key=lambda name: (name != "en", name)
    )
    return {name: tomllib.loads(found[name].read_text("utf-8")) for name in names}


def load_words(package: str, key: str, *, only: Iterable[str] = ()) -> frozenset[str]:
    """Return the words that stand under a key, in all languages or `only` in some."""
    languages = [held for language, held in load_languages(package).items() if not only or language in only]
    return frozenset(word for held in languages for word in held.get(key, "").split())


def load_phrases(package: str, key: str, *, only: Iterable[str] = ()) -> list[str]:
    """Return the phrases under a key (`table.key` in a table) as patterns, in all languages or `only` in some."""
    table, _, name = key.rpartition(".")
    languages = [held for language, held in load_languages(package).items() if not only or language in only]
    return [
        expand(phrase, held.get("parts", {}))
        for held in languages
        for phrase in (held.get(table, {}) if table else held).get(name, ())
    ]


def find_any(phrases: Iterable[str]) -> Pattern:
    """Return a pattern that finds any of the phrases as whole words."""
    return compile_linear("|".join(_whole(phrase) for phrase in phrases), is_ascii=True)


def begins_with(phrases: Iterable[str], *, after: str = "", before: str = "") -> Pattern:
    """Return a pattern that finds any of the phrases at the beginning, as whole words, between two other patterns."""
    return compile_linear(f"^{after}(?:{'|'.join(_whole(phrase) for phrase in phrases)}){before}", is_ascii=True)


def _whole(phrase: str) -> str:
    """Return the phrase with a border where it begins or ends with a letter; scripts without spaces have none."""
    begins = r"\b" if re.match(r"[(?:]*[a-z0-9]", phrase) else ""
    ends = r"\b" if re.search(r"[a-z0-9][)?*+]*$", phrase) else ""
    return f"{begins}(?:{phrase}){ends}"


def expand(phrase: str, parts: Mapping[str, str]) -> str:
    """Return the phrase as a pattern without groups; the name of a part that is not known stays."""
    phrase = _PART.sub(lambda found: f"({parts[found[1]]})" if found[1] in parts else found[0], phrase)
    if _PART.search(phrase) and any(name in parts for name in _PART.findall(phrase)):
        return expand(phrase, parts)
    return re.sub(r"\((?!\?)", "(?:", phrase).replace("… ", _GAP)

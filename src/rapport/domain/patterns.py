"""Compile patterns whose time is linear in the length of any text, with RE2 (ADR 53).

RE2 has no look-around and no back-references. Its `\\b` knows ASCII letters only, so a pattern that needs it on other letters is
applied to text without accents. `\\w`, `\\d` and `\\s` mean the same here as in `re`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any, Final, cast

re2: Any = importlib.import_module("re2")  # It has no type stubs.
Pattern = re.Pattern[str]
"""The methods that RE2's patterns share with those of `re`: search, match, fullmatch, finditer, findall, split, sub, subn."""

_CLASSES: Final = {"w": r"\pL\pN_", "d": r"\p{Nd}", "s": r"\s\x0b\x1c-\x1f\x{85}\pZ"}


def compile_linear(pattern: str, *, ignore_case: bool = False, is_ascii: bool = False) -> Pattern:
    """Return the pattern; its time grows in proportion to the text.

    With `is_ascii`, `\\w`, `\\d` and `\\s` stand for ASCII characters only: a pattern of many phrases stays small and fast.
    """
    options = re2.Options()
    options.log_errors = False  # The automaton of a large pattern may not fit its cache: slower, and nothing to report.
    options.case_sensitive = not ignore_case
    return cast("Pattern", re2.compile(pattern if is_ascii else "".join(_with_unicode(pattern)), options))


def _with_unicode(pattern: str) -> Iterator[str]:
    """Yield the pattern with classes that know all letters, as those of `re` do."""
    in_class = False
    position = 0
    while position < len(pattern):
        one = pattern[position]
        after = pattern[position + 1 : position + 2]
        if one == "\\":
            position += 2
            members = _CLASSES.get(after.lower())
            if members is None or (in_class and after.isupper()):
                yield one + after
            elif in_class:
                yield members
            else:
                yield f"[{'^' if after.isupper() else ''}{members}]"
            continue
        if one == "[" and not in_class:
            in_class = True
        elif one == "]" and in_class:
            in_class = False
        yield one
        position += 1

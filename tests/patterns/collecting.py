"""Find every compiled pattern of the package, and texts on which it is slow."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from types import ModuleType
from typing import Any, cast

import rapport
from rapport.domain.patterns import compile_linear

constants: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")

RE2 = cast("type[Any]", type(compile_linear("a")))
_CALLS = frozenset({"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"})
MANY = 4
"""A repeat that may go on for longer than this is pumped."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A pattern and the module that holds it."""

    module: str
    name: str
    pattern: re.Pattern[Any]
    """One of `re`, or of RE2, which has the same methods."""

    @property
    def is_linear(self) -> bool:
        """Return whether RE2 runs it."""
        return isinstance(self.pattern, RE2)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def modules() -> Iterator[ModuleType]:
    """Yield every module of the package."""
    for info in pkgutil.walk_packages(rapport.__path__, "rapport."):
        if not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


def patterns() -> list[Found]:
    """Return every pattern once, under the first name that it is found by."""
    found: dict[tuple[Any, int], Found] = {}
    for module in modules():
        short = module.__name__.removeprefix("rapport.")
        named = [each for name, value in vars(module).items() for each in _within(value, name, module.__name__, set())]
        for name, pattern in [*named, *_written_in(module)]:
            found.setdefault((pattern.pattern, flags_of(pattern)), Found(short, name, pattern))
    return list(found.values())


def _within(value: Any, name: str, module: str, seen: set[int]) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the patterns in a value, whatever holds them."""
    if isinstance(value, (re.Pattern, RE2)):
        yield name, cast("re.Pattern[Any]", value)
        return
    if id(value) in seen or isinstance(value, (str, bytes, int, float, ModuleType)):
        return
    seen.add(id(value))
    for each, held in _held_by(value, name, module):
        yield from _within(held, each, module, seen)


def _held_by(value: Any, name: str, module: str) -> list[tuple[str, Any]]:
    """Return what a value holds, with names."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return [(f"{name}[{key!r:.20}]", each) for key, held in pairs for each in (key, held)]
    if isinstance(value, (list, tuple, AbstractSet)):
        return [(f"{name}[{place}]", each) for place, each in enumerate(cast("Iterable[Any]", value))]
    if isinstance(value, type) and value.__module__ == module:
        return [(f"{name}.{key}", each) for key, each in vars(value).items()]
    if inspect.isfunction(value) and value.__module__ == module:
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [(name, each) for each in [*cells, *(value.__defaults__ or ())]]
    kind = cast("Any", type(value))
    if kind.__module__.startswith("rapport"):
        slots = getattr(kind, "__slots__", ())
        names = [*getattr(value, "__dict__", {}), *([slots] if isinstance(slots, str) else slots)]
        return [(f"{name}.{each}", getattr(value, each, None)) for each in names]
    return []


def _written_in(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the patterns that functions write out: `re.split(r"\\s+", text)`."""
    for function in ast.walk(_tree(module)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and (called := _called_of_re(node)) and node.args:
                written = node.args[0]
                if isinstance(written, ast.Constant) and isinstance(written.value, str):
                    yield f"{called}({written.value!r})", re.compile(written.value)


def _called_of_re(node: ast.Call) -> str | None:
    """Return the function of `re` that is called, if it is one."""
    function = node.func
    if not isinstance(function, ast.Attribute) or function.attr not in _CALLS:
        return None
    return function.attr if isinstance(function.value, ast.Name) and function.value.id == "re" else None


@lru_cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


@lru_cache
def _uses() -> dict[str, set[str]]:
    """Return with which methods each name of a pattern is used, in the whole package."""
    uses: dict[str, set[str]] = {}
    for module in modules():
        short = module.__name__.removeprefix("rapport.")
        for node in ast.walk(_tree(module)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                uses.setdefault(f"{short}.{node.value.id}", set()).add(node.attr)
    return uses


def methods_of(found: Found) -> set[str]:
    """Return the methods that the pattern is used with, if it is only ever tried at the beginning of a text."""
    if found.name.startswith(("match(", "fullmatch(")):
        return {found.name.partition("(")[0]}
    uses = _uses().get(f"{found.module}.{found.name}", set())
    return uses if uses <= {"match", "fullmatch"} else set()


# ---- texts on which a pattern may be slow


@dataclasses.dataclass(frozen=True)
class Pump:
    """A text of any length that repeats what a pattern repeats, and then fails to match."""

    head: str
    unit: str

    def text(self, length: int) -> str:
        """Return it with about this length."""
        return self.head + self.unit * (length // len(self.unit)) + "\x00"


def flags_of(pattern: Any) -> int:
    """Return the flags of a pattern; RE2's are all for text in any case."""
    return re.IGNORECASE if isinstance(pattern, RE2) else pattern.flags


def pumps(pattern: re.Pattern[Any]) -> set[Pump]:
    """Return the texts on which a pattern may be slow."""
    found: set[Pump] = set()
    for prefix, piece in _repeats(parser.parse(_in_syntax_of_re(pattern), flags_of(pattern)), [""]):
        for unit, head in ((piece, ""), (piece, prefix), (prefix + piece, ""), (prefix, "")):
            if unit:
                found |= {Pump(head, unit), Pump(head, unit + " ")}
    return found


def _in_syntax_of_re(pattern: Any) -> Any:
    """Return the pattern as `re` writes it: RE2 knows classes that `re` does not."""
    if not isinstance(pattern, RE2):
        return pattern.pattern
    spellings = {r"\pL\pN_": r"\w", r"\p{Nd}": r"\d", r"\s\x0b\x1c-\x1f\x{85}\pZ": r"\s"}
    written = cast("str", pattern.pattern)
    for theirs, ours in spellings.items():
        written = written.replace(theirs, ours)
    return written


def _repeats(tree: Any, before: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what leads to each repeat, and a text that it repeats."""
    prefix = before[0]
    for operation, argument in tree:
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            low, high, body = argument
            yield from _repeats(body, [prefix])
            if high > MANY:
                for sample in _samples(body):
                    if sample:
                        yield prefix, sample
            prefix += _sample(body) * max(low, 0)
            continue
        for inner in _inner(operation, argument):
            yield from _repeats(inner, [prefix])
        prefix += _sample([(operation, argument)])
    before[0] = prefix


def _inner(operation: Any, argument: Any) -> list[Any]:
    if operation is constants.SUBPATTERN:
        return [argument[3]]
    if operation is constants.BRANCH:
        return list(argument[1])
    if operation in (constants.ASSERT, constants.ASSERT_NOT):
        return [argument[1]]
    if operation is constants.ATOMIC_GROUP:
        return [argument]
    if operation is constants.GROUPREF_EXISTS:
        return [each for each in argument[1:] if each is not None]
    return []


def _sample(tree: Any) -> str:
    return next(iter(_samples(tree)), "")


def _samples(tree: Any) -> list[str]:
    """Return a few texts that a part of a pattern matches."""
    texts = [""]
    for operation, argument in tree:
        options = _options(operation, argument) or [""]
        texts = [text + option for option in options for text in texts][:6]
    return texts


def _options(operation: Any, argument: Any) -> list[str]:
    if operation is constants.LITERAL:
        return [chr(argument)]
    if operation is constants.NOT_LITERAL:
        return [next(one for one in "a b" if ord(one) != argument)]
    if operation is constants.ANY:
        return ["a", " "]
    if operation is constants.IN:
        return _members(argument)
    if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
        low, _, body = argument
        return [text * max(low, 1) for text in _samples(body)] if low else ["", *_samples(body)[:2]]
    if operation is constants.SUBPATTERN:
        return _samples(argument[3])
    if operation is constants.ATOMIC_GROUP:
        return _samples(argument)
    if operation is constants.BRANCH:
        return [text for branch in argument[1] for text in _samples(branch)[:1]][:4]
    return []


def _members(argument: Any) -> list[str]:
    candidates = " aA1.,-_'\n\t:/x@éz;!?[](){}<>#*+=\"`~|&%$\u200b漢"
    compiled = [each for each in argument if each[0] is not constants.NEGATE]
    negated = any(each[0] is constants.NEGATE for each in argument)
    fits = [one for one in candidates if _holds(compiled, one) != negated]
    literals = [chr(each[1]) for each in compiled if each[0] is constants.LITERAL] if not negated else []
    return [*fits, *literals][:3]


def _holds(members: list[Any], one: str) -> bool:
    for kind, value in members:
        if kind is constants.LITERAL and ord(one) == value:
            return True
        if kind is constants.RANGE and value[0] <= ord(one) <= value[1]:
            return True
        if kind is constants.CATEGORY:
            name = str(value)
            held = (
                one.isspace() if "SPACE" in name else one.isdigit() if "DIGIT" in name else one.isalnum() or one == "_"
            )
            if held != ("NOT" in name):
                return True
    return False

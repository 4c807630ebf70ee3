"""Run many cases of one claim as one test, which reports every case that fails."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

_SHOWN = 10
"""Of how many failing cases the traceback is shown; the others are listed."""


def every_case(names: str | Iterable[str], cases: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call the test once for each case, as `pytest.mark.parametrize` would; fixtures are shared by all of them.

    It costs a few microseconds a case, where a test of its own costs some milliseconds in every process that collects it.
    """
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = [_read_case(case, len(split)) for case in cases]
    assert values, "no case"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(test)
        others = [each for each in signature.parameters.values() if each.name not in split]

        @functools.wraps(test)
        async def run_asynchronously(**fixtures: Any) -> None:
            failures: list[str] = []
            for case in _bind(split, values):
                try:
                    await test(**fixtures, **case)
                except (Exception, pytest.fail.Exception):  # noqa: BLE001 - reported with the others
                    failures.append(_describe(case))
            _report(failures, len(values))

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures: list[str] = []
            for case in _bind(split, values):
                try:
                    test(**fixtures, **case)
                except (Exception, pytest.fail.Exception):  # noqa: BLE001 - reported with the others
                    failures.append(_describe(case))
            _report(failures, len(values))

        chosen: Any = run_asynchronously if inspect.iscoroutinefunction(test) else run
        chosen.__signature__ = signature.replace(parameters=others)
        return chosen

    return decorate


def _read_case(case: Any, count: int) -> tuple[Any, ...]:
    parameters = getattr(case, "values", None)
    if type(case).__name__ == "ParameterSet" and not callable(parameters):
        return tuple(parameters or ())
    return (case,) if count == 1 else tuple(case)


def _bind(names: list[str], values: list[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for case in values:
        yield dict(zip(names, case, strict=True))


def _describe(case: dict[str, Any]) -> str:
    shown = ", ".join(f"{name}={value!r:.200}" for name, value in case.items())
    return f"{shown}\n{traceback.format_exc()}"


def _report(failures: list[str], count: int) -> None:
    if failures:
        whole = failures[:_SHOWN] + [each.partition("\n")[0] for each in failures[_SHOWN:]]
        pytest.fail("\n".join([f"{len(failures)} of {count} cases fail", *whole]), pytrace=False)

"""Make the validator of a route's parameter once for each process, not once for each app.

A test's app has more than a hundred of them, and making them takes half of the time in which an app is wired.
"""

from __future__ import annotations

from typing import Any

from fastapi._compat import v2


def share_validators() -> None:
    """Let FastAPI use a validator again that it has made from the same type, constraints and attributes."""
    make = v2.ModelField.__post_init__
    made: dict[Any, Any] = {}

    def make_once(field: v2.ModelField) -> None:
        parts = v2.asdict(field.field_info)
        values: dict[str, Any] = parts["attributes"]
        # The types too: 1, 1.0 and True are equal.
        attributes: Any = tuple((name, value.__class__, value) for name, value in values.items())
        key: Any = (parts["annotation"], tuple(parts["metadata"]), attributes, repr(field.config))
        try:
            shared = made.get(key)
        except TypeError:  # a default that cannot be a key
            make(field)
            return
        if shared is None:
            make(field)
            shared = made[key] = field._type_adapter  # pyright: ignore[reportPrivateUsage]
        field._type_adapter = shared  # pyright: ignore[reportPrivateUsage]

    v2.ModelField.__post_init__ = make_once  # pyright: ignore[reportAttributeAccessIssue]

"""The fields of a class of settings as a table."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from typing import Any

from markdown_pieces import table
from pydantic.fields import FieldInfo


def fields_table(fields: Mapping[str, FieldInfo]) -> str:
    """Return a row a field: name, type with bounds, default, meaning."""
    return table(
        ("field", "type", "default", "meaning"),
        (
            (
                f"`{name}`",
                f"`{_type(field.annotation)}`{_bounds(field)}",
                _default(field),
                field.description or "",
            )
            for name, field in fields.items()
        ),
    )


def _type(annotation: Any) -> str:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return "function"
    if origin is typing.Literal:
        return " or ".join(repr(value) for value in inner)
    if origin in (types.UnionType, typing.Union):
        return " or ".join("null" if part is type(None) else _type(part) for part in inner)
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"{_type(inner[1])} by {_type(inner[0])}"
    return {"Path": "path", "StreamTaskSettings": "settings"}.get(
        annotation.__name__, annotation.__name__
    )


def _bounds(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    said = [
        f"{signs[name]} {getattr(rule, name)}"
        for rule in field.metadata
        for name in signs
        if hasattr(rule, name)
    ]
    return f", {', '.join(said)}" if said else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "null"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"

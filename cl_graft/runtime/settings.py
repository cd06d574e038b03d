"""Settings as frozen data whose fields know their description, range and default.

A class of settings is written once and read three times: as arguments in Python, as a part of an
experiment's config, and as options of the command line.
"""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from cl_graft.errors import InputError, nearest

_MOST_FAULTS = 5
_LARGEST_FLOAT = 1e18  # a rate or strength, and the product of two, must fit in float32
_LARGEST_WHOLE = 2**64  # seeds of torch and numbers in the metadata of files stay below
_Settings = TypeVar("_Settings")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
def settings_class(cls: type[_Settings]) -> type[_Settings]:
    """Make a class of settings: frozen, by keyword only, every value checked.

    Fields are declared with pydantic's `Field`: default, range and description, which the class's
    docstring gets. A wrong value raises `InputError`, also through `dataclasses.replace`.
    """
    guard = field_validator("*", mode="before", check_fields=False)(_refuse_truth_values)
    setattr(cls, "_refuse_truth_values", guard)  # noqa: B010  pydantic collects it by name
    bound = field_validator("*", mode="after", check_fields=False)(_refuse_huge_numbers)
    setattr(cls, "_refuse_huge_numbers", bound)  # noqa: B010  as above
    checked: Any = dataclass(cls, frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
    assign = checked.__init__

    @functools.wraps(assign)
    def initialize(self: Any, **values: Any) -> None:
        try:
            assign(self, **values)
        except ValidationError as error:
            faults = describe_faults(error, checked).values()
            raise InputError("; ".join(faults)) from None

    checked.__init__ = initialize
    text, examples, rest = inspect.cleandoc(cls.__doc__ or "").partition("\n\nExamples:")
    checked.__doc__ = f"{text}\n\n{_describe_fields(checked)}{examples}{rest}"
    return checked


def list_fields(cls: type[Any]) -> Mapping[str, FieldInfo]:
    """Return the fields of a class of settings by name; others than settings have none."""
    return getattr(cls, "__pydantic_fields__", {})


def describe_faults(
    error: ValidationError,
    cls: type[Any],
    *,
    source: str = "",
    origins: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Say what is wrong with settings, with the nearest known name for an unknown one, by origin.

    An origin is `source`, such as a file's name, or that of a single setting in `origins`, by
    dotted name.
    """
    faults: dict[str, dict[str, None]] = {}
    for fault in error.errors(include_url=False):
        path = tuple(str(part) for part in fault["loc"])
        origin = find_origin(".".join(path), origins or {}) or source
        faults.setdefault(origin, {})[_sentence(fault, path, cls)] = None
    return {origin: join_few([*sentences]) for origin, sentences in faults.items()}


def join_few(sentences: Sequence[str]) -> str:
    """Join the first sentences, and say how many more there are."""
    more = len(sentences) - _MOST_FAULTS
    shown = "; ".join(sentences[:_MOST_FAULTS])
    return f"{shown}; and {more} more" if more > 0 else shown


def _describe_fields(cls: type[Any]) -> str:
    """Return the section of a docstring on the arguments of a class of settings."""
    lines = [f"    {name}: {field.description}" for name, field in list_fields(cls).items()]
    return "\n".join(["Args:", *lines])


def _refuse_truth_values(cls: Any, value: Any, info: ValidationInfo) -> Any:
    # pydantic would read true as 1.
    field = list_fields(cls).get(info.field_name or "")
    if isinstance(value, bool) and field is not None and field.annotation is not bool:
        raise ValueError(f"got {value}; YAML reads yes, no, on and off so, unless quoted")
    return value


def _refuse_huge_numbers(value: Any) -> Any:
    """Refuse numbers that no optimiser or file can hold; infinity passes where a field takes it."""
    for number in value if isinstance(value, list | tuple) else [value]:
        if isinstance(number, float) and _LARGEST_FLOAT < abs(number) < math.inf:
            raise ValueError(f"a number must be at most {_LARGEST_FLOAT:g}, got {number:g}")
        if isinstance(number, int) and abs(number) >= _LARGEST_WHOLE:
            raise ValueError(f"a whole number must be below 2^64, got {reprlib.repr(number)}")
    return value


def find_origin(path: str, origins: Mapping[str, str]) -> str | None:
    """Return the origin of the longest name that leads to a place, else of one below it."""
    above = [name for name in origins if f"{path}.".startswith(f"{name}.")]
    below = [name for name in origins if name.startswith(f"{path}.")]
    return origins[max(above, key=len)] if above else origins[below[0]] if below else None


def _sentence(fault: Mapping[str, Any], path: Sequence[str], cls: type[Any]) -> str:
    given, kind = fault["input"], fault["type"]
    owner, shown = _owner(path, cls)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        name = ".".join([*shown, path[-1]])
        known = [".".join([*shown, field]) for field in list_fields(owner)]
        return f"unknown key {name!r}; {nearest(name, known)}"
    if kind == "missing":
        return f"{'.'.join(path)!r} is missing"
    message = str(fault["msg"]).removeprefix("Value error, ")
    name = ".".join(shown)
    expected = fault.get("ctx", {}).get("expected")
    if kind == "literal_error" and isinstance(given, str) and expected:
        return f"{name}: unknown {given!r}; {nearest(given, _split(expected))}"
    got = "" if kind == "value_error" else f", got {reprlib.repr(given)}"
    if kind == "string_type" and isinstance(given, bool | int | float):
        got += " (YAML reads numbers, yes, no, on and off as values: put quotes around it)"
    return f"{name}: {message}{got}" if name else message


def _owner(path: Sequence[str], cls: type[Any]) -> tuple[type[Any], list[str]]:
    """Return the class of the innermost settings at a place, and the place as users know it."""
    owner, shown, keyed = cls, [], False
    for part in path:
        field = list_fields(owner).get(part)
        if keyed or part.isdigit():
            shown.append(part)
            keyed = False
        elif field is not None:
            inner = _inner(field.annotation)
            keyed = inner is not None and inner is not field.annotation
            owner = inner if inner is not None else owner
            shown.append(part)
    return owner, shown


def _inner(annotation: Any) -> type[Any] | None:
    """Return the class of settings that an annotation names, alone or as the values of a dict."""
    if list_fields(annotation):
        return annotation
    return next((a for a in getattr(annotation, "__args__", ()) if list_fields(a)), None)


def _split(expected: str) -> list[str]:
    """Take the names out of pydantic's text, ``'a', 'b' or 'c'``."""
    return [part for part in expected.split("'") if part.strip(" ,") not in ("", "or")]

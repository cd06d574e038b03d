"""What is wrong with a config, in a sentence."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from cl_graft.errors import nearest

__all__ = ["sentence"]

_SAID = 5


def sentence(
    error: ValidationError,
    *,
    fields: Collection[str],
    inner: Collection[str],
    source: str,
    origins: Mapping[str, str],
) -> str:
    """Say what pydantic found, with the nearest known name for an unknown one.

    Args:
        error: What it found.
        fields: Known names of settings.
        inner: Known names inside a setting that has inner ones.
        source: Where the settings came from, such as a file's name.
        origins: Where some of them came from instead, by name, such as ``--set``.
    """
    faults: dict[str, dict[str, None]] = {}
    for fault in error.errors(include_url=False):
        origin = _origin(".".join(map(str, fault["loc"])), origins) or source
        faults.setdefault(origin, {})[_fault(fault, fields, inner)] = None
    parts: list[str] = []
    for origin, said in faults.items():
        more = f"; and {len(said) - _SAID} more" if len(said) > _SAID else ""
        parts.append(f"{origin}: {'; '.join([*said][:_SAID])}{more}")
    return "; ".join(parts)


def _origin(place: str, origins: Mapping[str, str]) -> str | None:
    """Return what set the value at a place, the one that said most of it."""
    own = [name for name in origins if f"{place}.".startswith(f"{name}.")]
    return origins[max(own, key=len)] if own else None


def _fault(fault: Mapping[str, Any], fields: Collection[str], inner: Collection[str]) -> str:
    place = [str(part) for part in fault["loc"]]
    given = fault["input"]
    if fault["type"] == "extra_forbidden":
        known = inner if len(place) > 1 else fields
        return f"unknown key {place[-1]!r}; {nearest(place[-1], known)}"
    if fault["type"] == "missing":
        return f"{place[-1]!r} is missing"
    message = str(fault["msg"]).removeprefix("Value error, ")
    # A place without the names that pydantic gives the members of a union.
    kept = (p for i, p in enumerate(place) if i == 0 or p in {*fields, *inner} or p.isdigit())
    name = ".".join(kept)
    expected = fault.get("ctx", {}).get("expected")
    if fault["type"] == "literal_error" and isinstance(given, str) and expected:
        return f"{name}: unknown {given!r}; {nearest(given, _split(expected))}"
    got = "" if fault["type"] == "value_error" else f", got {reprlib.repr(given)}"
    if fault["type"] == "string_type" and isinstance(given, bool | int | float):
        got += " (YAML reads numbers, yes, no, on and off as values: put quotes around it)"
    return f"{name}: {message}{got}" if place else message


def _split(expected: str) -> Sequence[str]:
    """Take the names out of pydantic's text, ``'a', 'b' or 'c'``."""
    return [part for part in expected.split("'") if part.strip(" ,") not in ("", "or")]

"""Settings by dotted name, such as ``stream.shots``, and by part, as YAML nests them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_graft.data.yaml_files import read_yaml
from cl_graft.errors import InputError
from cl_graft.runtime.settings import list_fields
from cl_graft.settings.parts import PARTS


def to_dotted(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of parts by dotted name, such as ``"stream.shots"``."""
    flat: dict[str, Any] = {}
    for part, own in values.items():
        if part in PARTS and isinstance(own, Mapping):
            flat |= {f"{part}.{name}": value for name, value in own.items()}
        else:
            flat[part] = own
    return flat


def to_nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return by part the settings that are given by dotted name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        put_(found, name, value)
    return found


def merge_configs(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return two partial configs as one, in which `over` overrides `under`."""
    both = dict(under) | dict(over)
    for part in PARTS:
        if isinstance(under.get(part), Mapping) and isinstance(over.get(part), Mapping):
            both[part] = {**under[part], **over[part]}
    return both


def override_(values: dict[str, Any], override: str) -> None:
    """Set one value, such as ``"fine_tuning.steps=200"``, in a mapping of settings."""
    name, equals, text = override.partition("=")
    if not equals or not all(name.strip().split(".")):
        raise InputError(f"--set {override}: expected part.field=value")
    value = read_yaml(text, place=f"--set {override}")
    put_(values, name.strip(), value, source=f"--set {override}")


def put_(values: dict[str, Any], name: str, value: Any, *, source: str = "") -> None:
    """Put a value at a dotted name of nested settings."""
    *outer, last = name.split(".")
    inner = values
    for key in outer:
        if inner.get(key) is None:
            inner[key] = {}
        found = inner[key]
        if not isinstance(found, dict):
            is_part = inner is values and key in PARTS
            fault = describe_part(key, found) if is_part else f"{key!r} has no inner settings"
            raise InputError(f"{source or name}: {fault}")
        inner = found
    inner[last] = value


def describe_part(name: str, value: object) -> str:
    """Say that a part of the config was given as something that is not a mapping."""
    known = ", ".join(list_fields(PARTS[name]))
    return f"{name!r} is a part with settings of its own ({known}), got {value!r}"

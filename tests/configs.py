"""Configs of tests: settings by their own names, put into the parts where they stand.

`settings(steps=4, density=0.01)` is what a YAML file with parts would hold. A name that several
parts have means the dense training's; others are given by dotted name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MEANT = {"model": "model.name", "name": "model.name", "region_lr": "grafting.lr"}


def places(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted name."""
    found = {_place(name): value for name, value in values.items()}
    if isinstance(sweep := found.get("comparison.sweep"), Mapping):
        found["comparison.sweep"] = {_place(name): value for name, value in sweep.items()}
    return found


def settings(values: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return settings by part, as a config file holds them."""
    from cl_graft.settings import to_nested

    return to_nested(places({**(values or {}), **more}))


def config_with(values: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Return a checked config."""
    from cl_graft.settings import config_from

    return config_from(settings(values, **more))


def changed(before: Any, values: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Return a config with other values."""
    return before.with_values(places({**(values or {}), **more}))


def sets(values: Mapping[str, Any]) -> list[str]:
    """Return settings as arguments of the command line."""
    return [part for name, value in places(values).items() for part in ("--set", f"{name}={value}")]


def _place(name: str) -> str:
    if "." in name or name == "preset":
        return name
    return _MEANT.get(name) or next(_parts_with(name), name)


def _parts_with(name: str) -> Iterator[str]:
    from cl_graft.runtime.settings import list_fields
    from cl_graft.settings.parts import PARTS

    found = (part for part, cls in PARTS.items() if name in list_fields(cls))
    return (f"{part}.{name}" for part in found)

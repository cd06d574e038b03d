"""Settings of a strategy's own, such as the weight of a penalty: their defaults and their check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cl_graft.errors import InputError, nearest

__all__ = ["Setting", "Value", "resolved"]

Value = float | int | str | bool


@dataclass(frozen=True)
class Setting:
    """One setting; a value is of its default's type.

    Attributes:
        name: As configs know it.
        default: What it is unless said otherwise.
        what: What it does, in a sentence.
        least: The smallest value, for numbers.
        most: The largest, for numbers.
        choices: The values, for names.
    """

    name: str
    default: Value
    what: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()


def resolved(
    settings: Sequence[Setting], given: Mapping[str, Value], *, owner: str
) -> dict[str, Value]:
    """Check given values and fill in the defaults.

    Args:
        settings: The settings there are.
        given: Values by name.
        owner: Whose settings these are, for messages.

    Raises:
        InputError: If a name is unknown (with the nearest known one) or a value does not fit.
    """
    known = {setting.name: setting for setting in settings}
    for name in given:
        if not known:
            raise InputError(f"{owner} has no settings of its own, got {name!r}")
        if name not in known:
            raise InputError(f"{owner}: unknown setting {name!r}; {nearest(name, known)}")
    return {
        setting.name: _fit(setting, given.get(setting.name, setting.default), owner=owner)
        for setting in settings
    }


def _fit(setting: Setting, value: Value, *, owner: str) -> Value:
    place, wanted = f"{owner}.{setting.name}", type(setting.default)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not wanted:
        kinds = {float: "a number", int: "a whole number", str: "a name", bool: "true or false"}
        raise InputError(f"{place} must be {kinds[wanted]}, got {value!r}")
    if isinstance(value, str):
        if setting.choices and value not in setting.choices:
            raise InputError(f"{place}: unknown {value!r}; {nearest(value, setting.choices)}")
        return value
    # NaN is in no range.
    if setting.least is not None and not value >= setting.least:
        raise InputError(f"{place} must be at least {setting.least:g}, got {value}")
    if setting.most is not None and not value <= setting.most:
        raise InputError(f"{place} must be at most {setting.most:g}, got {value}")
    return value

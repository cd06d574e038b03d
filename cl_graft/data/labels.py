"""The meaning of a label: a class id, one of the declared names, or a name itself.

A whole number in any form (1, "1", 1.0, "1.0") is one label. Where names are declared it is a class
id, else itself a name.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cl_graft.errors import InputError, nearest
from cl_graft.runtime.escaping import control_in

_logger = logging.getLogger(__name__)

_WHOLE = re.compile(r"[+-]?[0-9]{1,100}(\.0*)?")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONGEST_NAME = 200
_LARGEST_NUMBER = 3.4028234e38
_MISSING = {"nan", "NaN", "NAN", "null", "NULL", "None", "N/A", "#N/A", "<NA>"}


@dataclass(frozen=True, slots=True)
class Labels:
    """Label names by class id (none for a regression), and the class id of each spelling.

    Where names were declared a number is a class id; else it is itself a name ("3" for 3).
    """

    names: tuple[str, ...]
    ids: Mapping[str, int]
    declared: bool

    def read(self, value: object, origin: str) -> int | float:
        """Read one label: a number for a regression, else a class id."""
        if not self.names:
            return _read_number(value, origin)
        if not self.declared:
            value = read_label_name(value, origin)
        if isinstance(value, bool):
            value = str(value).lower()
        if isinstance(value, str):
            value = value.strip()
            if value in self.ids:
                return self.ids[value]
        if not self.declared:
            raise InputError(
                f"{origin}: label {value!r} is not among the labels of the training rows; "
                f"{nearest(str(value), self.names)}"
            )
        class_id = whole_number(value)
        if class_id is None and isinstance(value, str):
            raise InputError(
                f"{origin}: label {value[:_LONGEST_NAME]!r} is not among the declared label names; "
                f"{nearest(value, self.names)}"
            )
        if class_id is None or not 0 <= class_id < len(self.names):
            raise InputError(
                f"{origin}: label {value!r} is outside the declared {len(self.names)} labels: "
                f"expected 0 to {len(self.names) - 1}, or one of {', '.join(self.names)}"
            )
        return class_id


def read_labels(
    names: Sequence[str], aliases: Mapping[str, str], *, declared: bool = True
) -> Labels:
    """Prepare to read labels named `names`; an alias stands for the name that it maps to."""
    full_names = tuple(aliases.get(str(name), str(name)) for name in names)
    for name in full_names:
        if len(name) > _LONGEST_NAME or control_in(name):
            raise InputError(
                f"the label name {name[:40]!r} has {len(name)} characters, or control characters: "
                f"expected at most {_LONGEST_NAME} that can be shown"
            )
    if len(set(full_names)) != len(full_names) or len(full_names) == 1:
        raise InputError(f"two or more different label names are needed, got {list(full_names)}")
    ids = {name: class_id for class_id, name in enumerate(full_names)}
    for alias, name in aliases.items():
        # A number as alias renames a declared name only; in a row it may as well be a class id.
        if name in ids and whole_number(alias) is None:
            ids.setdefault(alias, ids[name])
    return Labels(full_names, ids, declared)


def read_label_name(value: object, origin: str) -> str:
    """Return the name that a label is where no names are declared."""
    if isinstance(value, bool):
        return str(value).lower()
    whole = whole_number(value)
    if whole is not None:
        return str(whole)
    if not isinstance(value, str) or NUMBER.fullmatch(value.strip()):
        raise InputError(
            f"{origin}: label {value!r} is neither a name nor a whole number; declare the label "
            "names if it is one of them, or none (an empty list) for a regression"
        )
    name = value.strip()
    if name in _MISSING:
        raise InputError(
            f"{origin}: label {name!r} looks like a missing value; declare the label names if it "
            "is one of them"
        )
    if len(name) > _LONGEST_NAME or control_in(name):
        raise InputError(
            f"{origin}: label {name[:40]!r} is no name: it has {len(name)} characters, or control "
            "characters; another column, or a quote that is not closed, causes this"
        )
    return name


def collect_class_names(labels: Sequence[str], *, origin: str, column: str) -> tuple[str, ...]:
    """Return the names of the classes: the distinct labels of the training rows, sorted."""
    distinct = set(labels)
    if len(distinct) < 2:
        raise InputError(
            f"{origin}: all rows have the same label {next(iter(distinct))!r} in column {column!r}"
        )
    if len(distinct) > max(20, len(labels) // 2):
        raise InputError(
            f"{origin}: column {column!r} has {len(distinct)} different values in {len(labels)} "
            "rows: that is no class label; name the label column, or declare the label names"
        )
    alike: dict[str, str] = {}
    for name in sorted(distinct):
        other = alike.setdefault(name.casefold(), name)
        if other != name:
            _logger.warning(
                "%s: the labels %r and %r differ only in their case; they are taken as two classes",
                origin,
                other,
                name,
            )
    numeric = all(whole_number(name) is not None for name in distinct)
    # Numbers sort as numbers: 2 before 10.
    return tuple(sorted(distinct, key=int) if numeric else sorted(distinct))


def name_listed_classes(
    values: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Put names in place of class ids in the lists of a row; what is no class id is left."""
    named = dict(values)
    for column, class_names in names.items():
        if isinstance(ids := values.get(column), list):
            known = range(len(class_names))
            named[column] = [class_names[i] if i in known else i for i in ids]
    return named


def has_no_label(value: object) -> bool:
    """Whether a label is missing, or hidden as benchmarks hide them: None, NaN, empty or −1."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return (isinstance(value, str) and not value.strip()) or whole_number(value) == -1


def whole_number(value: object) -> int | None:
    """Return the whole number that a value is or spells, as 1, 1.0, "1" and "1.0" do; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.partition(".")[0])
    return None


def _read_number(value: object, origin: str) -> float:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    spelt = isinstance(value, str) and NUMBER.fullmatch(value.strip())
    try:
        number = float(value) if plain or spelt else math.nan  # pyright: ignore[reportArgumentType]
    except OverflowError:
        number = math.nan
    if not abs(number) <= _LARGEST_NUMBER:
        fault = (
            f"is not a finite number of single precision, at most {_LARGEST_NUMBER:.1e}"
            if plain or spelt
            else "is no number, as a regression needs"
        )
        raise InputError(f"{origin}: label {str(value)[:60]!r} {fault}")
    return number

"""Numbers of results as text, alike in files, in the terminal and in notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cl_graft.kinds.rows import Row
    from cl_graft.lab.results.strategy_statistics import Spread

_LONGEST = 300
"""Characters of a row's text that are shown."""


def points(value: float | None) -> str:
    """Write a fraction in points; a dash where there is none."""
    return "–" if value is None else f"{100 * value:z.1f}"


def shorten(text: str) -> str:
    """Cut a row's text after 300 characters, and mark the cut."""
    return f"{text[:_LONGEST]} …" if len(text) > _LONGEST else text


def row_text(row: Row) -> str:
    """Write the text of a row, or both of a pair; a long one is cut."""
    return shorten(row.text if row.text_pair is None else f"{row.text} | {row.text_pair}")


def spread_text(spread: Spread, *, scale: float = 100, digits: int = 1) -> str:
    """Write a mean and its standard deviation, fractions in points; a dash where there is none."""
    if spread.mean is None:
        return "–"
    text = f"{scale * spread.mean:z,.{digits}f}"
    return text if spread.sd is None else f"{text} ± {scale * spread.sd:,.{digits}f}"


def model_text(model: Mapping[str, Any]) -> str:
    """Describe the base in a line, as results hold it."""
    return (
        f"model: {model['name']} ({model['family']}, {model['graftable']:,} graftable coordinates, "
        f"fingerprint {model['fingerprint'][:12]}…)"
    )


def pairs_text(values: Mapping[str, Any]) -> str:
    """Write names and values, such as versions, with commas between the pairs."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


def schedule_text(schedule: Mapping[str, Any]) -> str:
    """Describe how a task was trained, as results hold it."""
    return f"{schedule['steps']} steps of {schedule['batch_size']} rows at lr {schedule['lr']:g}"

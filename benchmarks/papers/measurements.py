"""Measurements: the numbers that an experiment finds, and their summary over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from papers.paper_metrics import stability


@dataclass(frozen=True)
class Measurement:
    """One number."""

    task: str
    method: str
    measure: str
    value: float
    x: float | None = None


@dataclass(frozen=True)
class Summary:
    """One number over seeds."""

    task: str
    method: str
    measure: str
    x: float | None
    mean: float
    deviation: float
    seeds: int
    values: tuple[float, ...]


def summarize(cells: Iterable[Sequence[Measurement]]) -> list[Summary]:
    """Average the measurements of several seeds; numbers that are not finite are left out."""
    found: dict[tuple[str, str, str, float | None], list[float]] = {}
    for measurements in cells:
        for r in measurements:
            if math.isfinite(r.value):
                found.setdefault((r.task, r.method, r.measure, r.x), []).append(r.value)
    rows = []
    for (task, method, measure, x), values in found.items():
        spread = stability(values)
        rows.append(
            Summary(
                task, method, measure, x,
                spread.mean, spread.deviation, spread.runs, tuple(values),
            )
        )  # fmt: skip
    return rows


def table(rows: Sequence[Summary], *, axis: str) -> str:
    """Write a Markdown table: one line a task, method and place on the axis, one column a measure.

    Fractions are written as they are; a spread follows where there are several seeds.
    """
    head, lines = table_cells(rows, axis=axis)
    ruler = ["---", "---", *["---:"] * (len(head) - 2)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ruler, *lines]) + "\n"


def table_cells(
    rows: Sequence[Summary], *, axis: str = ""
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the head of the table that `table` writes, and its lines."""
    measures = list(dict.fromkeys(row.measure for row in rows))
    with_axis = any(row.x is not None for row in rows)
    head = ["task", "method", *([axis or "x"] if with_axis else []), *measures]
    found: dict[tuple[str, str, float | None], dict[str, Summary]] = {}
    for row in rows:
        found.setdefault((row.task, row.method, row.x), {})[row.measure] = row
    lines: list[Sequence[str]] = []
    for (task, method, x), own in found.items():
        place = ["" if x is None else _place(x)] if with_axis else []
        lines.append([task, method, *place, *(_cell(own.get(name)) for name in measures)])
    return head, lines


def square(rows: Sequence[Summary], *, measure: str) -> str:
    """Write one measure as a Markdown table: one line a method, one column a task."""
    own = [row for row in rows if row.measure == measure]
    tasks = list(dict.fromkeys(row.task for row in own))
    lines: dict[str, dict[str, Summary]] = {}
    for row in own:
        lines.setdefault(row.method, {})[row.task] = row
    written = [["method", *tasks], ["---", *["---:"] * len(tasks)]]
    for method, found in lines.items():
        written.append([method, *(_cell(found.get(task)) for task in tasks)])
    return "\n".join(f"| {' | '.join(line)} |" for line in written) + "\n"


def sweep(rows: Sequence[Summary], *, measure: str) -> str:
    """Write one measure as a Markdown table: one line a task and method, one column a place."""
    own = [row for row in rows if row.measure == measure]
    places = sorted({row.x for row in own if row.x is not None})
    plain = any(row.x is None for row in own)
    head = ["task", "method", *(["–"] if plain else []), *map(_place, places)]
    lines: dict[tuple[str, str], dict[float | None, Summary]] = {}
    for row in own:
        lines.setdefault((row.task, row.method), {})[row.x] = row
    written = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    columns: list[float | None] = [*([None] if plain else []), *places]
    for (task, method), found in lines.items():
        written.append([task, method, *(_cell(found.get(place)) for place in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in written) + "\n"


def _place(x: float) -> str:
    return f"{x:.0f}" if x.is_integer() else f"{x:.3g}"


def _cell(row: Summary | None) -> str:
    if row is None:
        return ""
    digits = 3 if abs(row.mean) < 100 else 0
    text = f"{row.mean:.{digits}f}"
    return text if row.seeds < 2 else f"{text} ± {row.deviation:.{digits}f}"

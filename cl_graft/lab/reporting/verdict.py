"""The verdict of a report: what the runs say in a few sentences, read off their measures.

It names the strategies; of many, the one that the comparison is about, what forgets beside it, and
fine-tuning of each task alone. Measures of different units are never averaged, and times of
different machines are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.results.run_results import find_method_name
from cl_graft.lab.results.strategy_statistics import Spread
from cl_graft.lab.results.summary_tables import average_columns, measure_columns, note_on_rows
from cl_graft.lab.results.tables import spread_text
from cl_graft.metrics.statistics import LEAST_SAMPLES
from cl_graft.runtime.byte_sizes import decimal_bytes
from cl_graft.strategies.registry import STRATEGIES

_MOST_NAMED = 4
"""Strategies up to which scores, bytes and rows name all."""


def write_verdict(data: ReportData) -> list[str]:
    """Return sentences on forgetting, scores, bytes, time and certainty, the most telling first.

    What is not known has no sentence: forgetting of a single task, or the time of runs that were
    resumed.
    """
    names = data.strategies
    main, others = names[0], names[1:]
    alone = next((name for name in others if find_method_name(name) == "independent"), None)
    rival = next((name for name in others if find_method_name(name) == "naive"), None)
    rival = rival or next(
        (n for n in others if not _is_bound(n) and find_method_name(n) != find_method_name(main)),
        None,
    )
    named = [name for name in (main, rival, alone) if name is not None]
    methods = {find_method_name(name) for name in names}
    shown = names if len(names) == len(methods) <= _MOST_NAMED else named
    sentences = [
        *_forgetting(data, main, rival),
        _bytes(data, [n for n in shown if find_method_name(n) != "naive" or n == main]),
        _time(data, main, rival or alone),
        _rows(data, shown),
        note_on_rows(data.summary),
        *_scores(data, shown),
        _same_bits(data, main),
        _certainty(data, main, rival or alone),
        _choice(data, shown),
    ]
    return [sentence for sentence in sentences if sentence]


def _forgetting(data: ReportData, main: str, rival: str | None) -> list[str]:
    sentences = []
    for column in measure_columns(data.summary, "forgetting"):
        if column.spreads[main].mean is None:
            continue
        # Of several metrics, a column's title names that of its tasks.
        metric = column.title.partition(", ")[2]
        said = f"{main} forgot {_points(column.spreads[main])} points"
        said += f" of {metric}" if metric else ""
        if rival and column.spreads[rival].mean is not None:
            said += f", {rival} {_points(column.spreads[rival])}"
        sentences.append(f"{said}.")
    return sentences


def _bytes(data: ReportData, names: Sequence[str]) -> str:
    rows = data.summary.strategies
    sizes = [(name, rows[name].bytes_per_task.mean) for name in names]
    said = [f"{decimal_bytes(round(size))} with {name}" for name, size in sizes if size is not None]
    return f"A task adds {', '.join(said)}." if said else ""


def _time(data: ReportData, main: str, other: str | None) -> str:
    if other is None:
        return ""
    ours, theirs = data.results(main), data.results(other)
    runs = [*ours, *theirs]
    same = all(run.machine == runs[0].machine and run.processes == 1 for run in runs)
    if not same or [(r.seed, r.tasks) for r in ours] != [(r.seed, r.tasks) for r in theirs]:
        return ""
    spent, base = (sum(run.total_seconds for run in part) for part in (ours, theirs))
    return f"{main} took {spent / base:,.2f} times as long as {other}." if spent and base else ""


def _rows(data: ReportData, names: Sequence[str]) -> str:
    rows = [(name, data.summary.strategies[name].forward_backward.mean) for name in names]
    said = [f"{count:,.0f} with {name}" for name, count in rows if count]
    return f"Rows that training read: {', '.join(said)}." if said else ""


def _scores(data: ReportData, names: Sequence[str]) -> list[str]:
    sentences = []
    for column in average_columns(data.summary):
        said = [f"{n} {_points(s)}" for n in names if (s := column.spreads[n]).mean is not None]
        if said:
            title = f"{column.title[0].upper()}{column.title[1:]}"
            sentences.append(f"{title} at the end: {', '.join(said)}.")
    return sentences


def _same_bits(data: ReportData, main: str) -> str:
    same, count = data.summary.strategies[main].same_bits
    if not count or len(data.summary.tasks) == 1:
        return ""
    said = "every answer is" if same == count else f"the answers to {same} of {count} tasks are"
    return f"At the end of {main}, {said} bit for bit as on the day the task was learned."


def _certainty(data: ReportData, main: str, other: str | None) -> str:
    seeds = len({run.seed for run in data.results(main)})
    if seeds < LEAST_SAMPLES:
        count = "One seed" if seeds == 1 else f"{seeds} seeds"
        return f"{count}: nothing can be said about how sure these numbers are."
    said = f"± is the standard deviation over {seeds} seeds."
    test = next((each for each in data.summary.differences if each.strategy == other), None)
    if test is None or test.reference != main or test.p_holm is None:
        return said
    apart = "differ" if test.p_holm < 0.05 else "cannot be told apart"
    return f"{said} {main} and {other} {apart} in {data.summary.overall} (p {test.p_holm:.2g})."


def _choice(data: ReportData, names: Sequence[str]) -> str:
    """Say that the best of several variants of a method is named, where there are several."""
    methods = [find_method_name(name) for name in data.strategies]
    if all(methods.count(find_method_name(name)) == 1 for name in names):
        return ""
    return "Of several variants of a method, the one with the highest score on test rows is named."


def _is_bound(name: str) -> bool:
    return (method := STRATEGIES.get(find_method_name(name))) is not None and method.is_bound


def _points(spread: Spread) -> str:
    """Write a mean in points, and its standard deviation where that is not zero."""
    return spread_text(spread).removesuffix(" ± 0.0")

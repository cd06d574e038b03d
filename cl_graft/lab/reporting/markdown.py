"""The summary of a run or of a comparison as Markdown, `summary.md`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cl_graft.lab.reporting.measure_columns import (
    average_columns,
    has_several_metrics,
    measure_columns,
    metric_rows,
    other_columns,
    summary_notes,
)
from cl_graft.lab.reporting.stream_section import stream_section
from cl_graft.lab.results.comparison import ComparisonSummary
from cl_graft.lab.results.comparison_rows import note_on_rows
from cl_graft.lab.results.formatting import (
    model_text,
    pairs_text,
    points,
    schedule_text,
    spread_text,
)
from cl_graft.lab.results.measures import (
    MEASURES,
    measure,
    measure_title,
    metrics_text,
    overall_title,
    tasks_by_metric,
)
from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.strategy_statistics import mean_ece
from cl_graft.metrics.statistics import LEAST_SAMPLES
from cl_graft.runtime.escaping import for_markdown, for_markdown_code
from cl_graft.settings.data_report import data_lines
from cl_graft.storage.files import replace_file
from cl_graft.training.passes import Passes, total_passes

__all__ = [
    "NOTHING_SAID",
    "settings_at_edge",
    "write_comparison_summary",
    "write_run_summary",
]

NOTHING_SAID = (
    "With fewer than three seeds nothing can be said about how sure means and differences are: "
    "there are no intervals and no tests. --seeds 0,1,2 gives them."
)
"""For comparisons with too few seeds."""


def write_run_summary(result: RunResult, folder: Path) -> None:
    """Write `summary.md` into a run's folder."""
    tasks, learned = result.tasks, len(result.R)
    state = "" if result.complete else f" (unfinished: {learned} of {len(tasks)} tasks learned)"
    lines = [f"# {for_markdown(result.strategy)}, seed {result.seed}{state}", ""]
    lines += ["Score on each task (columns) after learning each (rows), in %:", ""]
    lines += _matrix(result.R, tasks)
    if result.routed is not None:
        lines += ["", "Of each task's texts, the share that was sent to it, in %; an answer is one "
                  "of the labels of all tasks learned so far:", ""]  # fmt: skip
        lines += _matrix(result.routed, tasks)
    groups = tasks_by_metric(result.metrics)
    counts = {metric: None if len(groups) == 1 else len(own) for metric, own in groups.items()}
    lines += ["", *_table(["measure", "in points"], [
        *([measure_title(name, metric, tasks=counts[metric]), points(measure(result, name, metric))]
          for name in MEASURES for metric in groups),
        ["ECE, mean over tasks", points(mean_ece(result))],
    ])]  # fmt: skip
    lines += [] if len(groups) == 1 else ["", for_markdown(metrics_text(result.metrics))]
    lines += ["", *_table(["task", "score", "ECE", "region", "lost to earlier tasks", "stored",
                           "seconds", "rows differentiated", "rows answered",
                           "same logits at the end"],
                          [_task_row(result, j) for j in range(learned)])]  # fmt: skip
    lines += ["", *_origin(result)]
    _write(lines, folder)


def write_comparison_summary(summary: ComparisonSummary, folder: Path) -> None:
    """Write `summary.md` of a comparison from what its `summary.json` holds."""
    tasks, rows = summary.tasks, summary.strategies
    seeds = ", ".join(str(seed) for seed in summary.seeds)
    many = len(summary.seeds) > 1
    orders = summary.orders
    title = f"{', '.join(tasks)} in {len(orders)} orders" if orders else " → ".join(tasks)
    lines = [f"# {for_markdown(title)}", ""]
    lines += [f"Seeds: {seeds}. {'Of each the mean over all orders. ' if orders else ''}"
              f"{'Mean ± standard deviation over them; s' if many else 'S'}"
              "cores, transfers, forgetting and ECE in points.", ""]  # fmt: skip
    beside = any(row.of_independent is not None for row in rows.values())
    averages = average_columns(summary)
    # Of several metrics they are in a table of their own.
    more = [] if has_several_metrics(summary) else [
        *measure_columns(summary, "backward_transfer"), *measure_columns(summary, "forgetting")
    ]  # fmt: skip
    head = ["strategy", *(one.title for one in averages), *(["of independent"] if beside else [])]
    head += [*(one.title for one in more), "ECE"]
    head += [f"{task} at the end" for task in tasks] + ["bytes a task", "seconds", "rows"]
    routed = any(row.routing_accuracy.mean is not None for row in rows.values())
    head += ["sent right", "passes a text"] if routed else []
    lines += _table(head, [
        [
            name,
            *(spread_text(one.spreads[name]) for one in averages),
            *([_ratio(row.of_independent)] if beside else []),
            *(spread_text(one.spreads[name]) for one in more),
            spread_text(row.ece),
            *(spread_text(row.final[task]) for task in tasks),
            spread_text(row.bytes_per_task, scale=1, digits=0),
            spread_text(row.seconds, scale=1, digits=0),
            spread_text(row.forward_backward, scale=1, digits=0),
            *([spread_text(row.routing_accuracy)] if routed else []),
            *([spread_text(row.passes_per_row, scale=1)] if routed else []),
        ]
        for name, row in rows.items()
    ])  # fmt: skip
    lines += ["", "Seconds are those of all phases, also where a phase was answered by the cache "
              "(a dense run that grafting and independent fine-tuning share); rows are those "
              "that went forward and backward."]  # fmt: skip
    rows_seen = {name: row.forward_backward.mean or 0.0 for name, row in rows.items()}
    if note := note_on_rows(rows_seen):
        lines += ["", for_markdown(note)]
    if beside:
        lines += [f"*Of independent*: the {summary.overall} over that of independent fine-tuning."]
    if routed:
        lines += ["", "Where texts are *sent*, the strategy is not told their task: it picks one, "
                  "and its answer is among the labels of all tasks. *Sent right* is the share "
                  "that it sent to their own task, the mean over tasks; all others count as "
                  "wrong. The other strategies are given the task, and answer among its labels. "
                  "*Passes a text* go forward to answer it."]  # fmt: skip
    lines += _by_metric(summary) + _other_metrics(summary) + _by_order(summary) + _budget(summary)
    lines += _differences(summary) + _describe_tuning(summary) + stream_section(summary.config)
    if summary.failed:
        lines += ["", "## Not finished", ""]
        lines += _items(
            *(f"{one.strategy}, seed {one.seed}: {one.error}" for one in summary.failed)
        )
    lines += ["", *_where(summary)]
    _write(lines, folder)


def _by_metric(summary: ComparisonSummary) -> list[str]:
    """Say what averages are means of, and show transfer and forgetting of each metric."""
    if not has_several_metrics(summary):
        return []
    found = metric_rows(summary)
    lines = [line for note in summary_notes(summary) for line in ("", for_markdown(note))]
    lines += ["", "## Transfer and forgetting by metric", ""]
    return [*lines, *_table(["strategy", "metric", *found[0][1]], [
        [name, metric, *(spread_text(own[place]) for own in values.values())]
        for place, name in enumerate(summary.strategies)
        for metric, values in found
    ])]  # fmt: skip


def _other_metrics(summary: ComparisonSummary) -> list[str]:
    """Show scores at the end by metrics that are not the tasks' own, where tasks have any."""
    if not (columns := other_columns(summary)):
        return []
    return ["", "## Other metrics at the end", "", *_table(
        ["strategy", *(one.title for one in columns)],
        [[n, *(spread_text(one.spreads[n]) for one in columns)] for n in summary.strategies],
    )]  # fmt: skip


def _by_order(summary: ComparisonSummary) -> list[str]:
    """Show what strategies are compared by on every order; the mean over seeds."""
    orders, rows = summary.orders, summary.strategies
    if not orders or all(value is None for row in rows.values() for value in row.by_order):
        return []
    title = f"## {summary.overall[0].upper()}{summary.overall[1:]} by order"
    return ["", title, "", *_table(["order", *rows], [
        [" → ".join(order), *(points(row.by_order[place]) for row in rows.values())]
        for place, order in enumerate(orders)
    ])]  # fmt: skip


def _differences(summary: ComparisonSummary) -> list[str]:
    """Say which strategies differ from one of them, and how they rank."""
    lines: list[str] = []
    if len(summary.seeds) < LEAST_SAMPLES and len(summary.strategies) > 1:
        lines += ["", NOTHING_SAID]
    if tests := summary.differences:
        reference = tests[0].reference
        lines += ["", f"## {for_markdown(reference)} against the others", ""]
        lines += _table(["against", "difference", "95 % interval", "p", "p, corrected", "seeds"], [
            [
                test.strategy,
                points(test.difference),
                " to ".join(points(end) for end in test.interval or [None]),
                *("–" if p is None else f"{p:.3g}" for p in (test.p, test.p_holm)),
                str(test.n),
            ]
            for test in tests
        ])  # fmt: skip
        lines += ["", f"By how many points the {summary.overall} of {for_markdown(reference)} is "
                  "higher: mean over seeds, paired t-test, p corrected after Holm for all "
                  "rows."]  # fmt: skip
        if any(test.p is None for test in tests):
            lines += ["– where the difference is the same with every seed, which shows no spread."]
    if found := summary.ranks:
        lines += ["", "## Average ranks", "", *_table(
            ["strategy", "rank"], [[name, f"{rank:.2f}"] for name, rank in found.ranks.items()]
        )]  # fmt: skip
        lines += ["", f"Of the scores at the end on {found.tasks} tasks, the mean over seeds"
                  f"{' and orders' if summary.orders else ''}. Ranks less than "
                  f"{found.critical_difference:.2f} apart cannot be told apart (Nemenyi's test "
                  "at 5 %, which takes the tasks for independent samples)."]  # fmt: skip
        if has_several_metrics(summary):
            lines[-1] += " Strategies are ranked within a task, by its own metric."
    return lines


def _budget(summary: ComparisonSummary) -> list[str]:
    """Compare at equal bytes a task: how large each strategy was made, and what it stored."""
    if (budget := summary.budget) is None:
        return []
    measures = average_columns(summary)
    if not has_several_metrics(summary):
        measures += measure_columns(summary, "forgetting")
    limit = budget.bytes_per_task
    head = ["strategy", "its size", "bytes a task", "of the budget", "largest task"]
    lines = ["", f"## At most {limit:,} bytes a task", ""]
    lines += _table([*head, *(one.title for one in measures)], [
        [
            name,
            f"{size.setting} {size.value:g}" if size.setting else "as it is",
            spread_text(row.bytes_per_task, scale=1, digits=0),
            f"{(row.bytes_per_task.mean or 0.0) / limit:.0%}",
            spread_text(row.most_bytes, scale=1, digits=0),
            *(spread_text(one.spreads[name]) for one in measures),
        ]
        for name, row in summary.strategies.items()
        for size in [budget.sizes[name]]
    ])  # fmt: skip
    lines += ["", "Bytes as they were stored, heads and indices counted, the mean over tasks; "
              "bounds run as they are."]  # fmt: skip
    if budget.unmet:
        lines += ["", "Cannot meet it:", ""]
        lines += _items(*(f"{name}: {why}" for name, why in budget.unmet.items()))
    return lines


def _describe_tuning(summary: ComparisonSummary) -> list[str]:
    """Say which values were chosen of each strategy's grid."""
    tuned = {name: row.tuning for name, row in summary.strategies.items() if row.tuning}
    if not tuned:
        return []
    names = next(iter(tuned.values()))["tasks"]
    metrics = {task: summary.metrics[task] for task in names if task in summary.metrics}
    score = overall_title(metrics)
    if len(tasks_by_metric(metrics)) > 1:
        score = "mean share of the best score of the grid on each task,"
    tasks = for_markdown(" and ".join(names))
    head = ["strategy", "grid", "chosen", "dev score of each"]
    lines = ["", "## Tuned values", "", *_table(head, [
        [
            name,
            "; ".join(f"{n}: {', '.join(map(str, v))}" for n, v in tuning["grid"].items()),
            _values(tuning["chosen"], marked=settings_at_edge(tuning)),
            "; ".join(f"{_values(s['values'])}: {points(s['score'])}" for s in tuning["scores"]),
        ]
        for name, tuning in tuned.items()
    ], numbers=False)]  # fmt: skip
    return [*lines, "", f"Chosen by the {score} on the dev rows of {tasks}, once for all "
            "seeds; – diverged; * at an edge of its grid: values beyond were not tried. "
            "Other strategies have nothing to tune."]  # fmt: skip


def settings_at_edge(tuning: Mapping[str, Any]) -> set[str]:
    """Return the settings whose chosen value is the lowest or the highest of its grid."""
    return {
        name
        for name, values in tuning["grid"].items()
        if tuning["chosen"][name] in (min(values), max(values))
    }


def _values(values: Mapping[str, Any], *, marked: Collection[str] = ()) -> str:
    return ", ".join(f"{name} {value}{'*' * (name in marked)}" for name, value in values.items())


def _matrix(cells: Sequence[Sequence[float | None]], tasks: Sequence[str]) -> list[str]:
    """Show a matrix with a row for each task learned, and a column for each task tested."""
    rows = [[tasks[i], *map(points, row)] for i, row in enumerate(cells)]
    return _table(["after", *tasks[: len(cells)]], rows)


def _task_row(result: RunResult, j: int) -> list[str]:
    name = result.tasks[j]
    region = result.coordinates.get(name)
    hashes = result.logit_hashes[name]
    seconds = sum(result.find_seconds(name).values())
    passes = total_passes(Passes(**phase) for phase in result.passes.get(name, {}).values())
    return [
        name,
        ", ".join(
            f"{points(score)} ({metric})"
            for metric, score in (
                (result.metrics[name], result.R[-1][j]),
                *result.other_scores.get(name, {}).items(),
            )
        ),
        points(result.ece[-1][j]),
        f"{region['claimed']:,.0f} ({region['density']:.3%})" if region else "–",
        f"{region['lost']:.1%}" if region else "–",
        f"{result.bytes[name]:,} bytes",
        f"{seconds:.0f}",
        f"{passes.forward_backward:,}",
        f"{passes.forward:,}",
        "yes" if hashes["learned"] == hashes["end"] else "no",
    ]


def _origin(result: RunResult) -> list[str]:
    schedules = [f"{name}: {schedule_text(own)}" for name, own in result.schedules.items()]
    went_on = (
        f"processes: {result.processes}, as the run was interrupted; seconds are those of the "
        "process that finished a phase"
    )
    return [
        *_items(model_text(result.model), f"training: {'; '.join(schedules)}"),
        *_items(*data_lines(result.data)),
        f"- command: {for_markdown_code(result.command)}",
        *(_items(went_on) if result.processes > 1 else []),
        *_items(f"machine: {pairs_text(result.machine)}"),
        *_items(f"versions: {pairs_text(result.versions)}"),
    ]


def _where(summary: ComparisonSummary) -> list[str]:
    return [
        *_items(*data_lines(summary.data), model_text(summary.model)),
        f"- command: {for_markdown_code(summary.command)}",
        *_items(f"machine: {pairs_text(summary.machine)}"),
        *_items(f"versions: {pairs_text(summary.versions)}"),
    ]


def _items(*texts: str) -> list[str]:
    """Return the lines of a list; texts are escaped."""
    return [f"- {for_markdown(text)}" for text in texts]


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True
) -> list[str]:
    """Return the lines of a table; behind the first column stand numbers, or texts."""
    rule = ["---", *["---:" if numbers else "---"] * (len(head) - 1)]
    lines = [head, rule, *rows]
    return [f"| {' | '.join(map(for_markdown, line))} |" for line in lines]


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _write(lines: Sequence[str], folder: Path) -> None:
    replace_file(folder / "summary.md", ("\n".join(lines) + "\n").encode())

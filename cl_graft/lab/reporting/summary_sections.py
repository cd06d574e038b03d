"""The sections that a summary has of itself, for `summary.md` and for the page of a report."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from cl_graft.lab.results import summary_tables
from cl_graft.lab.results.comparison import ComparisonSummary
from cl_graft.lab.results.measures import has_one_metric, overall_title, tasks_by_metric
from cl_graft.lab.results.tables import Table, model_text, pairs_text
from cl_graft.metrics.statistics import LEAST_SAMPLES
from cl_graft.settings.data_report import data_lines

if TYPE_CHECKING:
    from cl_graft.lab.reporting.pictures import Picture

_ROUTED = (
    "Routing accuracy is the share of texts that a strategy sent to their own task without being "
    "told it, the mean over tasks; all others count as wrong, and its answers are among the labels "
    "of all tasks. The other strategies are told the task, and answer among its labels."
)


@dataclass(frozen=True)
class Section:
    """A section of the page or of `summary.md`: paragraphs, tables, pictures, a list, commands.

    `name` is its anchor; tables have names of files; `details` are tables by strategy that unfold.
    """

    name: str
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    pictures: tuple[Picture, ...] = ()
    lines: tuple[str, ...] = ()
    code: tuple[tuple[str, str], ...] = ()
    details: tuple[tuple[str, tuple[tuple[str, Table], ...]], ...] = ()


def summary_sections(summary: ComparisonSummary) -> list[Section]:
    """Return the sections on scores, budget, tuned values and costs, those there are."""
    made = (_comparison(summary), _budget(summary), _tuning(summary), _costs(summary))
    return [section for section in made if section is not None]


def origin_lines(summary: ComparisonSummary) -> list[str]:
    """Say which model, data, machine and versions the runs of a comparison had."""
    return [
        model_text(summary.model),
        *data_lines(summary.data),
        f"machine: {pairs_text(summary.machine)}",
        f"versions: {pairs_text(summary.versions)}",
    ]


def _comparison(summary: ComparisonSummary) -> Section:
    rows, several = summary.strategies, not has_one_metric(summary.metrics)
    seeds = ", ".join(map(str, summary.seeds))
    text = [
        f"Strategies: {len(rows)}; seeds: {seeds}. Scores, transfers, forgetting and ECE are in "
        f"points{', each the mean over all orders' if summary.orders else ''}."
    ]
    text += summary_tables.summary_notes(summary)
    if not several:
        text.append(f"Tasks are scored by {' and '.join(dict.fromkeys(summary.metrics.values()))}.")
    if any(row.routing_accuracy.mean is not None for row in rows.values()):
        text.append(_ROUTED)
    if stream := summary.config.get("stream", {}).get("name"):
        text.append(
            f"The stream is {stream}: cl-graft streams {quote(str(stream))} shows its protocol and "
            "pitfalls, and what others published on it with other models."
        )
    if any(row.of_independent is not None for row in rows.values()):
        text.append(
            f"Of independent is the {summary.overall} over that of independent fine-tuning."
        )
    if len(summary.seeds) < LEAST_SAMPLES and len(rows) > 1:
        text.append(
            "With fewer than three seeds nothing can be said about how sure means and differences "
            "are: there are no intervals and no tests. --seeds 0,1,2 gives them."
        )
    made = [("comparison", summary_tables.scores(summary))]
    made += [("by-metric", summary_tables.by_metric(summary))] if several else []
    if summary.other_metrics:
        made.append(("other-metrics", summary_tables.other_metrics(summary)))
    if any(value is not None for row in rows.values() for value in row.by_order):
        made.append(("by-order", summary_tables.by_order(summary)))
    failed = tuple(f"Not finished: {o.strategy}, seed {o.seed}: {o.error}" for o in summary.failed)
    return Section("comparison", "Comparison", tuple(text), tuple(made), lines=failed)


def _budget(summary: ComparisonSummary) -> Section | None:
    if summary.budget is None:
        return None
    return Section(
        "budget",
        f"At most {summary.budget.bytes_per_task:,} bytes a task",
        (
            "Bytes as they were stored, heads and indices counted, the mean over tasks; bounds run "
            "as they are.",
        ),
        (("budget", summary_tables.budget(summary)),),
        lines=tuple(f"Cannot meet it: {name}: {why}" for name, why in summary.budget.unmet.items()),
    )


def _tuning(summary: ComparisonSummary) -> Section | None:
    tuned = [row.tuning for row in summary.strategies.values() if row.tuning]
    if not tuned:
        return None
    names = tuned[0]["tasks"]
    metrics = {task: summary.metrics[task] for task in names if task in summary.metrics}
    score = overall_title(metrics)
    if len(tasks_by_metric(metrics)) > 1:
        score = "mean share of the best score of the grid on each task,"
    text = (
        f"Chosen by the {score} on the dev rows of {' and '.join(names)}, once for all seeds; – "
        "diverged; * at an edge of its grid: values beyond were not tried. Other strategies have "
        "nothing to tune."
    )
    made = (("tuned", summary_tables.tuned_values(summary)),)
    return Section("tuned", "Tuned values", (text,), made)


def _costs(summary: ComparisonSummary) -> Section:
    text = (
        "Seconds are those of all phases, also where the cache answered one; rows differentiated "
        "went forward and backward."
    )
    return Section("costs", "Costs", (text,), (("costs", summary_tables.costs(summary)),))

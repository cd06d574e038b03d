"""Pages made of stored results alone: every table, and claim by claim what they say.

What is written is a function of the stored files: a page never differs from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cl_graft.lab.figures import png
from cl_graft.storage.files import replace_file
from papers.claims import CLAIMS, CLAIMS_BY_SOURCE, Claim, Verdict, judge
from papers.experiments import EXPERIMENTS
from papers.figures import draw_figure
from papers.measurements import square, sweep, table
from papers.stored import Stored, read_stored, read_stream

FOLDER = "paper_tables"
"""The folder of the pages of tables, a page an experiment, and the name of the page above them."""

_BEST_FIRST = ("paper", "cpu", "smoke")
_CLAIM_HEAD = ("claim", "the paper's number", "holds if", "ours", "run with", "verdict")


def read_results(folder: Path | str, *, stream: Path | str | None = None) -> dict[str, Stored]:
    """Read the stored results, of each experiment the one of the largest scale."""
    folder = Path(folder)
    stream = None if stream is None else Path(stream)
    found = [read_stored(file) for file in sorted(folder.glob("*.json"))]
    if stream is not None and stream.exists():
        found.append(read_stream(stream))
    found.sort(key=lambda result: _BEST_FIRST.index(result.scale), reverse=True)
    chosen = {result.name: result for result in found}
    order = [*EXPERIMENTS, "table4"]
    return {name: chosen[name] for name in order if name in chosen}


def verdicts(
    results: Mapping[str, Stored], claims: Iterable[Claim] = CLAIMS
) -> dict[Claim, Verdict]:
    """Judge claims, every one if none are given."""
    views = {name: result.view for name, result in results.items()}
    return {claim: judge(claim, views) for claim in claims}


def claims_page(results: Mapping[str, Stored]) -> str:
    """Return the page of claims in Markdown."""
    found = verdicts(results)
    parts = [
        "# Claims of the papers",
        "Made by `make results` from the stored numbers alone; [the tables](paper_tables.md) show "
        "them and what they measure, and [results](overview.md) has Table 4, a stream. A rule on "
        "the numbers decides each claim; where the paper gives no number its bound is this "
        "project's. Rules were written before their results, but some were mended afterwards, "
        "where they did not say what the paper says: "
        "[decision 10](../decisions/10-scores.md) lists them. Numbers "
        "are means over the seeds named; in parentheses, or as a span, stand the lowest and the "
        "highest task, no interval of confidence. Behind a verdict stands how many seeds give it "
        "by themselves, where a seed alone can: what not all of them say is not settled. The "
        "models are far smaller than the papers', with fewer rows: a claim that does not hold here "
        "is not thereby refuted there.",
        _count_verdicts(found.values()),
    ]
    for source, claims in CLAIMS_BY_SOURCE.items():
        rows = [_row(claim, found[claim], results) for claim in claims]
        parts += [
            f"## {source}",
            _count_verdicts(found[claim] for claim in claims),
            _format_table(_CLAIM_HEAD, rows),
        ]
    return "\n\n".join(parts) + "\n"


def tables_page(results: Mapping[str, Stored]) -> str:
    """Return the page that lists the tables, in Markdown."""
    parts = [
        "# Tables and figures of the papers",
        "Made by `make results` from the stored numbers alone: `benchmarks/results/laboratory` "
        "has every value of every seed. [Claims](claims.md) says what they show. Numbers are mean "
        "± standard deviation over the seeds named (`sam_fig4`: over methods and tasks); scores, "
        "shares and calibration errors are fractions. The score is accuracy, but F1 on MRPC and "
        "QQP, Matthews' correlation on CoLA and Pearson's on STS-B. ECE is the expected "
        "calibration error; agreement the share of rows that a graft answers as the fine-tuned "
        "model does; relative gain what part of the gain from one model to another is kept (Eq. 5 "
        "of the grafting paper); overlap with a task what share of its region is in this one; IoU "
        "intersection over union. `masked_lm` and `causal_lm` are the models that "
        "[`prompt_model.py`](../guides/reproduce_the_papers.md) trains.",
    ]
    shown = {name: result for name, result in results.items() if name in EXPERIMENTS}
    if not shown:
        return "\n\n".join([*parts, "No experiment has been stored yet."]) + "\n"
    rows = []
    for name, result in shown.items():
        own = _judge_own(name, results)
        held = sum(verdict.holds is True for verdict in own.values())
        claims = f"{held} of {len(own)} hold" if own else "–"
        rows.append((f"[{result.title}]({FOLDER}/{name}.md)", result.source, claims))
    parts.append(_format_table(("table or figure", "of", "claims"), rows))
    pages = "\n".join(f"{FOLDER}/{name}" for name in shown)
    parts.append(f"```{{toctree}}\n:hidden:\n\n{pages}\n```")
    lines = [f"- {', '.join(names)}: {environment}" for environment, names in _environments(shown)]
    parts += ["## Versions and machines", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def table_page(name: str, results: Mapping[str, Stored]) -> str:
    """Return the page of an experiment's tables, its picture and what became of its claims."""
    result, experiment = results[name], EXPERIMENTS[name]
    parts = [
        f"# {result.title}",
        f"{result.source}. {result.setting}.{result.duration} `{result.command}`",
        f"[What the numbers are](../{FOLDER}.md), and on which machine they were made.",
        *_tables(result, apart_from=results.get(experiment.cells)),
        f"![{result.title}: {experiment.measure}](../pictures/{name}.png)",
    ]
    own = [
        f"- {claim.text} **{verdict}** ({claim.rule}): {verdict.ours}."
        for claim, verdict in _judge_own(name, results).items()
    ]
    return "\n\n".join([*parts, *(["\n".join(own)] if own else [])]) + "\n"


def write_pages(results: Mapping[str, Stored], docs: Path | str) -> list[Path]:
    """Write the pages and the pictures, and return the files."""
    docs = Path(docs)
    written = {
        docs / "claims.md": claims_page(results).encode(),
        docs / f"{FOLDER}.md": tables_page(results).encode(),
    }
    for name, result in results.items():
        if name in EXPERIMENTS:
            drawn = draw_figure(EXPERIMENTS[name], result.rows)
            written[docs / FOLDER / f"{name}.md"] = table_page(name, results).encode()
            written[docs / "pictures" / f"{name}.png"] = png(drawn, dpi=100)
    for file, content in written.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, content)
    return list(written)


def _judge_own(name: str, results: Mapping[str, Stored]) -> dict[Claim, Verdict]:
    """Judge the claims of an experiment, and leave out those that were not run."""
    own = [claim for claim in CLAIMS if claim.experiments[0] == name]
    found = verdicts(results, own)
    return {claim: verdict for claim, verdict in found.items() if verdict.holds is not None}


def _count_verdicts(found: Iterable[Verdict]) -> str:
    found = list(found)
    counts = Counter(str(verdict) for verdict in found)
    by_seed = [(str(verdict), *verdict.alone) for verdict in found if verdict.alone is not None]
    alike = [told for told, same, seeds in by_seed if same == seeds]
    return (
        f"{counts.total()} claims: {counts['holds']} hold, {counts['does not hold']} do not; "
        f"not run here: {counts['not run here']}. Of those that hold, {alike.count('holds')} do so "
        f"with every seed by itself. On {len(by_seed) - len(alike)} the seeds disagree."
    )


def _row(claim: Claim, verdict: Verdict, results: Mapping[str, Stored]) -> Sequence[str]:
    ran = [results[name] for name in claim.experiments if name in results]
    pages = [
        f"[`{name}`]({FOLDER}/{name}.md)"
        if name in results and name in EXPERIMENTS
        else f"`{name}`"
        for name in claim.experiments
    ]
    place = f"{claim.source}, {', '.join(pages)}"
    ours = "–" if verdict.holds is None else verdict.ours
    told = f"not run here: {verdict.ours}" if verdict.holds is None else f"**{verdict}**"
    if verdict.alone is not None:
        alike, seeds = verdict.alone
        told += f"{',' if alike == seeds else ' in the mean, and in'} {alike} of {seeds} seeds"
    settings = dict.fromkeys(result.setting for result in ran) if verdict.holds is not None else ()
    used = "; beside ".join(settings) or "–"
    return f"{claim.text} ({place})", claim.paper, str(claim.rule), ours, used, told


def _format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _tables(result: Stored, *, apart_from: Stored | None) -> list[str]:
    """Return a table an experiment, or one a measure where there is an axis or a heat map."""
    experiment = EXPERIMENTS[result.name]
    known = {row.measure for row in apart_from.rows} if apart_from else set()
    rows = [row for row in result.rows if row.measure not in known]
    measures = list(dict.fromkeys(row.measure for row in rows))
    if experiment.heatmaps:
        return [f"{m}:\n\n{square(rows, measure=m).strip()}" for m in measures]
    if not experiment.axis:
        return [table(rows, axis="x").strip()]
    return [
        f"{measure}, by {experiment.axis}:\n\n{sweep(rows, measure=measure).strip()}"
        for measure in measures
    ]


def _environments(results: Mapping[str, Stored]) -> list[tuple[str, list[str]]]:
    """Group experiments by versions and machine."""
    found: dict[str, list[str]] = {}
    for name, result in results.items():
        names = ("cl-graft", "torch", "transformers", "avalanche-lib", "peft", "python")
        packages = [f"{n} {result.versions[n]}" for n in names if n in result.versions]
        machine = result.machine
        where = f"{machine['system']}, {machine['cores']} cores, device {machine['device']}"
        found.setdefault(f"{', '.join(packages)}; {where}", []).append(f"`{name}`")
    return list(found.items())

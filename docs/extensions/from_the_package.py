"""Put facts of the package into pages, so that they cannot go stale.

A line `<!-- from the package: NAME -->` of a page is replaced by what the function of that name in
`SECTIONS` returns, Markdown again. What is read off are the tables that the package itself works
by: the fields of the config, the localizers, strategies, presets, built-in tasks, prompts and the
help of the command line.

The docstrings of the package write sizes of sets as |A|, which reStructuredText would take for a
substitution; `escape_bars` undoes that. Behind the docstring of a name stand links to the pages
with examples of it.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from command_help import commands, show_help
from config_fields import fields_table
from documented_modules import (
    document_modules,
    first_sentence,
    list_pages,
    pages_that_use,
    public_names,
)
from markdown_pieces import link_sources, table, toctree, without_links_to_files

ROOT = Path(__file__).parents[2]
MARKER = re.compile(r"^<!-- from the package: ([a-z][a-z ]*) -->$", re.MULTILINE)


def fill(text: str) -> str:
    """Replace every marker of a page.

    Raises:
        ValueError: If a marker names no section.
    """

    def section(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in SECTIONS:
            raise ValueError(f"no section {name!r}; there are {', '.join(SECTIONS)}")
        return SECTIONS[name]()

    return MARKER.sub(section, text)


def config() -> str:
    """Every field of the config with its type, default, range and meaning, by part."""
    from cl_graft.runtime.settings import list_fields
    from cl_graft.settings import ExperimentConfig
    from cl_graft.settings.parts import PARTS
    from cl_graft.settings.stream_settings import StreamTaskSettings

    own = list_fields(ExperimentConfig)
    sections = [fields_table({name: own[name] for name in own if name not in PARTS})]
    for part, cls in PARTS.items():
        sections.append(f"## `{part}`\n\n{own[part].description}")
        sections.append(
            fields_table({n: field for n, field in list_fields(cls).items() if not field.exclude})
        )
    sections.append("### Settings of one task\n\nThe fields of each value of `task_settings`.")
    sections.append(fields_table(list_fields(StreamTaskSettings)))
    return "\n\n".join(sections)


def presets_of_settings() -> str:
    """What the presets of the config set."""
    from cl_graft.settings.presets import PRESETS

    settings = [
        (f"`{name}`", f"`{part}.{key}`", f"`{json.dumps(value)}`")
        for name, preset in PRESETS.items()
        for part, own in preset.items()
        for key, value in own.items()
    ]
    return table(("preset", "field", "value"), settings)


def localizers() -> str:
    """The table of localizers."""
    from cl_graft.localization import LOCALIZERS

    columns = ("name", "score", "gradients", "needs the dense run", "source")
    return table(
        columns,
        (
            (
                f"`{row.name}`",
                first_sentence(row.score.__doc__),
                "yes" if row.needs_gradients else "no",
                "yes" if row.needs_dense_run else "no",
                link_sources(row.source),
            )
            for row in LOCALIZERS.values()
        ),
    )


def experiments() -> str:
    """The table of experiments."""
    sys.path.append(str(ROOT / "benchmarks"))
    try:
        from papers import EXPERIMENTS
    finally:
        sys.path.pop()

    rows = [
        (f"`{row.name}`", row.title, row.source, ", ".join(f"`{task}`" for task in row.tasks))
        for row in EXPERIMENTS.values()
    ]
    return table(("name", "shows", "source", "tasks"), rows)


def strategies() -> str:
    """A table of strategies for each family, and one of how they train and resume."""
    from cl_graft.strategies.registry import STRATEGIES

    families: dict[str, list[tuple[str, ...]]] = {}
    training: dict[tuple[str, str], list[str]] = {}
    for row in STRATEGIES.values():
        if row.family != "ablation":
            told = (
                f"`{row.name}`",
                first_sentence(row.kind.__doc__),
                row.adds,
                link_sources(row.source),
            )
            families.setdefault(row.family, []).append(told)
            resumes = "inside a task" if row.is_resumable else "from the start"
            trains = "parameters of each task" if row.trains == "per_task" else row.trains
            training.setdefault((trains, resumes), []).append(f"`{row.name}`")
    parts = [
        f"### {family.capitalize()}\n\n"
        + table(("name", "what it does", "a task adds", "source"), rows)
        for family, rows in families.items()
    ]
    how = ((*key, ", ".join(names)) for key, names in training.items())
    columns = "its loop trains", "resumes after a stop", "strategies"
    return "\n\n".join([*parts, "### Training and resuming", table(columns, how)])


def settings_of_strategies() -> str:
    """The settings of strategies of their own; what several share stands once."""
    from cl_graft.strategies.registry import STRATEGIES

    shared: dict[tuple[str, str, str], list[str]] = {}
    for row in STRATEGIES.values():
        for setting in row.settings:
            told = f"`{setting.name}`", f"`{json.dumps(setting.default)}`", setting.meaning
            shared.setdefault(told, []).append(f"`{row.name}`")
    columns = "setting", "default", "meaning", "strategies"
    return table(columns, ((*told, ", ".join(names)) for told, names in shared.items()))


def grids_of_strategies() -> str:
    """The values among which tuning chooses."""
    from cl_graft.strategies.registry import STRATEGIES

    return table(
        ("strategy", "values", "runs of two tasks"),
        (
            (
                f"`{row.name}`",
                "; ".join(f"`{n}`: {', '.join(map(str, v))}" for n, v in row.grid.items()),
                str(math.prod(map(len, row.grid.values()))),
            )
            for row in STRATEGIES.values()
            if row.grid and row.family != "ablation"
        ),
    )


def rates_of_strategies() -> str:
    """The optimiser, rate, decay and warm-up with which each strategy trains by default."""
    from cl_graft.localization.grafting_settings import STEP_NORM
    from cl_graft.strategies.registry import STRATEGIES, make_loop_schedule
    from cl_graft.training.fine_tuning_settings import FineTuning

    rows: dict[tuple[str, ...], list[str]] = {}
    for row in STRATEGIES.values():
        if row.family == "ablation":
            continue
        what = {"region": "regions", "nothing": "its dense runs"}.get(row.trains, "its loop")
        found = make_loop_schedule(row, FineTuning())
        rate = f"{found.lr:g}" if found.lr != FineTuning.lr else "`fine_tuning.lr`"
        told = [(what, found, rate)]
        if row.trains == "region":
            sgd = make_loop_schedule(row, FineTuning(), optimizer="sgd")
            told = [
                ("regions", found, f"{STEP_NORM:g} · s / √k"),
                ("regions with `grafting.optimizer: sgd`", sgd, f"{sgd.lr:g}"),
            ]
        for trained, own, lr in told:
            optimizer = {"sgd": "SGD", "adamw": "AdamW"}[own.optimizer]
            warm_up = f"{100 * (own.warm_up or 0):g} % of the steps" if own.warm_up else "none"
            key = trained, optimizer, lr, str(own.lr_decay), warm_up
            rows.setdefault(key, []).append(f"`{row.name}`")
    columns = "trained", "optimiser", "rate", "decay", "warm-up", "strategies"
    return table(columns, ((*told, ", ".join(names)) for told, names in rows.items()))


def scenarios_of_strategies() -> str:
    """Which strategies run in which form of a stream, and why the others do not."""
    from cl_graft.strategies.registry import STRATEGIES

    rows: dict[tuple[str, str, str], list[str]] = {}
    for row in STRATEGIES.values():
        if row.family != "ablation":
            reasons = "; ".join(dict.fromkeys(row.unsupported.values()))
            forms = ("no" if form in row.unsupported else "yes" for form in ("domain", "class"))
            rows.setdefault((*forms, reasons), []).append(f"`{row.name}`")
    return table(
        ("strategies", "task", "domain", "class", "why not"),
        ((", ".join(names), "yes", *how) for how, names in rows.items()),
    )


def task_presets() -> str:
    """The table of known data sets."""
    from cl_graft.data import PRESETS

    return table(
        ("name", "labels", "columns", "metric", "tokens", "hub"),
        (
            (
                f"`{row.name}`",
                ", ".join(row.label_names) or "a number",
                ", ".join(
                    f"`{column}`"
                    for column in (row.columns.text, row.columns.text_pair, row.columns.label)
                    if column
                ),
                row.metric,
                row.max_length,
                f"`{row.hub}`" if row.hub else "local files only",
            )
            for row in PRESETS.values()
        ),
    )


def built_in_tasks() -> str:
    """The table of built-in tasks, with the first row of each."""
    from cl_graft.data import BUILT_IN, load_task

    rows = []
    for name, folder in BUILT_IN.items():
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        task = load_task(name)
        first = task.train[0]
        texts = f"{first.text} / {first.text_pair}" if first.text_pair else first.text
        counts = ", ".join(f"{n} {split}" for split, n in meta["rows"].items())
        labels = ", ".join(task.label_names)
        answer = f"{texts} → {task.label_names[int(first.label)]}"
        licence = meta["licence"].split(",")[0]
        rows.append((f"`{name}`", meta["description"], labels, answer, counts, licence))
    return table(("name", "what decides the label", "labels", "a row", "rows", "licence"), rows)


def prompts() -> str:
    """The prompts of the presets for both families of language models."""
    from cl_graft.data import CAUSAL_PROMPTS, PROMPTS

    parts = []
    for title, prompts in (("Masked", PROMPTS), ("Causal", CAUSAL_PROMPTS)):
        rows = (
            (
                f"`{name}`",
                f"`{prompt.template}`".replace("\n", "⏎"),
                ", ".join(f"{label}: {word}" for label, word in prompt.words.items()),
            )
            for name, prompt in prompts.items()
        )
        parts.append(f"### {title}\n\n{table(('task', 'template', 'words'), rows)}")
    return "\n\n".join(parts)


def decisions() -> str:
    """Links to the decisions, by number."""
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    return "\n".join(f"- [{_title(file)}](../decisions/{file.name})" for file in files)


def decision_pages() -> str:
    """The same as a table of contents."""
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    return toctree(f"../decisions/{file.stem}" for file in files)


def benchmarks() -> str:
    """The results of the benchmarks, where they were run."""
    readme = ROOT / "benchmarks" / "README.md"
    if not readme.is_file():
        return "No benchmark has been recorded yet."
    return nested(readme.read_text(encoding="utf-8"))


def plan_check() -> str:
    """What the plan predicted and what was measured, where that was run."""
    found = ROOT / "benchmarks" / "results" / "plan.md"
    return found.read_text(encoding="utf-8") if found.is_file() else "It has not been run yet."


def error_rates() -> str:
    """How often intervals and tests were wrong in the simulation."""
    found = ROOT / "benchmarks" / "results" / "error_rates.md"
    return found.read_text(encoding="utf-8") if found.is_file() else "It has not been run yet."


def nested(text: str) -> str:
    """Turn a page of its own into a chapter: headings two levels down, no links to files.

    What stands in fences is left as it is.
    """
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    for place in range(0, len(parts), 2):
        lower = re.sub(r"^(#+ )", r"##\1", parts[place], flags=re.MULTILINE)
        parts[place] = without_links_to_files(lower)
    return "".join(parts)


SECTIONS: Mapping[str, Callable[[], str]] = {
    "config": config,
    "presets of settings": presets_of_settings,
    "localizers": localizers,
    "experiments": experiments,
    "strategies": strategies,
    "settings of strategies": settings_of_strategies,
    "grids of strategies": grids_of_strategies,
    "rates of strategies": rates_of_strategies,
    "scenarios of strategies": scenarios_of_strategies,
    "task presets": task_presets,
    "built in tasks": built_in_tasks,
    "prompts": prompts,
    "commands": commands,
    "decisions": decisions,
    "decision pages": decision_pages,
    "benchmarks": benchmarks,
    "plan check": plan_check,
    "error rates": error_rates,
    "public names": public_names,
}
"""What a page can ask for."""


def escape_bars(lines: list[str]) -> None:
    """Escape `|` in a docstring's lines, in place, but not inside double backticks."""
    for number, line in enumerate(lines):
        parts = line.split("``")
        lines[number] = "``".join(
            part if place % 2 else part.replace("|", r"\|") for place, part in enumerate(parts)
        )


def setup(app: Any) -> dict[str, object]:
    """Register with Sphinx."""
    used = pages_that_use()

    def read(app: Any, page: str, source: list[str]) -> None:
        del app, page
        source[0] = show_help(list_pages(document_modules(fill(source[0]))))

    def docstring(
        app: Any, what: str, name: str, thing: object, options: object, lines: list[str]
    ) -> None:
        del app, what, name, thing, options
        escape_bars(lines)

    def link_examples(
        app: Any, what: str, name: str, thing: object, options: object, lines: list[str]
    ) -> None:
        del app, thing, options
        pages = used.get(name.rpartition(".")[2], []) if what in ("class", "function") else []
        if pages:
            links = ", ".join(f":doc:`/{page}`" for page in pages[:3])
            lines += ["", f"Used in {links}.", ""]

    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", docstring, priority=100)
    app.connect("autodoc-process-docstring", link_examples, priority=900)  # of the finished text
    # The pages depend on the package, which Sphinx does not watch: it reads them all each time.
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: list(env.found_docs))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _title(file: Path) -> str:
    return file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")

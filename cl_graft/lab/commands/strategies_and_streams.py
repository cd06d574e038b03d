"""The commands `strategies` and `streams`: what can be chosen by name."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cl_graft.cli.options import AsJson, argument
from cl_graft.cli.output import Output, make_table

if TYPE_CHECKING:
    from cl_graft.data.streams import PublishedResult


def strategies_command(as_json: AsJson = False) -> None:
    """List the strategies of run and compare, and their own settings.

    [b]Example[/b]: cl-graft strategies
    """
    from cl_graft.strategies.registry import STRATEGIES

    rows = list(STRATEGIES.values())
    content = [
        {
            "name": row.name,
            "family": row.family,
            "source": row.source,
            "trains": row.trains,
            "adds": row.adds,
            "unavailable": row.unavailable or None,
            "settings": [asdict(setting) for setting in row.settings],
            "refuses": dict(row.unsupported),
            "kinds": row.kinds,
            "grid": {name: list(values) for name, values in row.grid.items()},
        }
        for row in rows
    ]
    ablations = [row.name for row in rows if row.family == "ablation"]
    others = [row for row in rows if row.family != "ablation"]
    shown = [
        (
            row.name,
            row.family,
            row.adds,
            ", ".join(f"{setting.name}={setting.default}" for setting in row.settings),
            row.source,
        )
        for row in others
        if not row.unavailable
    ]
    by_label = [row.name for row in others if row.unsupported]
    columns = ("name", "family", "a task adds", "its own settings", "source")
    Output(as_json=as_json).result(
        content,
        make_table("The strategies", columns, shown),
        *(f"Not available: {row.name}: {row.unavailable}" for row in rows if row.unavailable),
        f"Ablations of grafting: {', '.join(ablations)}",
        f"Not in every scenario (--json says why): {', '.join(by_label)}",
        "Set their own settings as in: --set comparison.strategy_settings.ewc.ewc_lambda=10",
    )


def streams_command(
    name: Annotated[str | None, argument("NAME|FILE.yaml", "Show this stream in full.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the named streams of run and compare, or show one of them in full.

    A stream is a list of tasks in their order, with the settings under which it was published.

    [b]Examples[/b]

      cl-graft streams

      cl-graft streams long15-order4
    """
    from cl_graft.data.streams import STREAMS, find_stream

    output = Output(as_json=as_json)
    if name is None:
        rows = [
            (key, str(len(stream.tasks())), ", ".join(map(str, stream.names())), stream.source)
            for key, stream in STREAMS.items()
        ]
        output.result(
            [_describe_stream(key, stream) for key, stream in STREAMS.items()],
            make_table("The streams", ("name", "tasks", "in this order", "source"), rows),
            *STREAMS.failures,
            "One of them whole: cl-graft streams NAME; use it: cl-graft compare --stream NAME",
        )
        return
    stream = find_stream(name)
    protocol = [
        f"{key} {'all' if value is None else value}"
        for key, value in stream.settings.items()
        if key != "task_settings"
    ]
    said = {
        "": stream.title,
        "From: ": stream.source,
        "Tasks: ": " → ".join(stream.tasks()),
        "As published: ": stream.as_published,
        "Settings here: ": ", ".join(protocol),
    }
    published = [
        (
            result.method,
            result.model,
            _list_scores(result),
            "yes" if result.knows_task else "no",
            f"{result.source}{' (as others quote it)' if result.quoted else ''}",
        )
        for result in stream.published
    ]
    columns = ("published by others", "model", "score in %", "told the task", "source")
    output.result(
        _describe_stream(name, stream),
        *(f"{head}{text}" for head, text in said.items() if text),
        *(f"Take care: {text}" for text in stream.pitfalls),
        *([make_table("Not measured here", columns, published)] if published else []),
    )


def _list_scores(result: PublishedResult) -> str:
    average = "" if result.average is None else f"{result.average:.1f}"
    if average and result.over:
        average += f", mean over {result.over}"
    tasks = ", ".join(f"{task} {score:.1f}" for task, score in result.by_task.items())
    return "; ".join(part for part in (average, tasks) if part)


def _describe_stream(name: str, stream: Any) -> dict[str, Any]:
    return {
        "name": name,
        "title": stream.title,
        "source": stream.source,
        "tasks": stream.tasks(),
        "protocol": stream.settings,
        "as_published": stream.as_published,
        "published": [asdict(result) for result in stream.published],
        "pitfalls": stream.pitfalls,
        "needs_folder": stream.needs_folder,
    }

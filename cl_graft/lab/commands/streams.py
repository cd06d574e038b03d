"""The command `streams`: the named streams, with their tasks, protocol, source and pitfalls."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from cl_graft.cli.options import AsJson
from cl_graft.cli.output import Output, make_table


def streams_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|FILE.yaml", help="Show this stream in full.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the named streams of run and compare, or show one of them in full.

    A stream is a list of tasks in their order, with the settings under which it was published.

    [b]Examples[/b]

      cl-graft streams

      cl-graft streams long15-order4
    """
    from cl_graft.data.streams import STREAMS, find_stream
    from cl_graft.lab.reporting.summary_sections import PUBLISHED_COLUMNS, published_rows

    output = Output(as_json=as_json)
    if name is None:
        rows = [
            (own, str(len(stream.tasks())), ", ".join(map(str, stream.names())), stream.source)
            for own, stream in STREAMS.items()
        ]
        output.result(
            [{"name": own, **_content(stream)} for own, stream in STREAMS.items()],
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
    rows = published_rows(stream.published)
    output.result(
        {"name": name, **_content(stream)},
        *(f"{head}{text}" for head, text in said.items() if text),
        *(f"Take care: {text}" for text in stream.pitfalls),
        *([make_table("Not measured here", PUBLISHED_COLUMNS, rows)] if rows else []),
    )


def _content(stream: Any) -> dict[str, Any]:
    return {
        "title": stream.title,
        "source": stream.source,
        "tasks": stream.tasks(),
        "protocol": stream.settings,
        "as_published": stream.as_published,
        "published": [asdict(result) for result in stream.published],
        "pitfalls": stream.pitfalls,
        "needs_folder": stream.needs_folder,
    }

"""The part of a comparison's summary on its named stream, with the results that others published.

What others published is shown, and enters no statistics: their models, rows and protocol are other
ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cl_graft.data.streams import PublishedResult, Stream, find_stream
from cl_graft.errors import InputError
from cl_graft.runtime.escaping import for_markdown

__all__ = [
    "NOT_OURS",
    "PUBLISHED_COLUMNS",
    "list_changes",
    "named_stream",
    "published_rows",
    "stream_notes",
    "stream_section",
]

PUBLISHED_COLUMNS = ("published by others", "model", "score in %", "told the task", "source")
"""Columns of a table of published results."""

NOT_OURS = (
    "These are results of other models under the published protocol. They enter no mean, interval "
    "or test of this page. A method that is not told the task solves a harder problem than one "
    "that is."
)
"""Remark that stands beside published results."""


def named_stream(config: Mapping[str, Any]) -> Stream | None:
    """Return the stream that a config names; None if it names none, or it is not known here."""
    name = config.get("stream", {}).get("name")
    try:
        return find_stream(name) if name else None
    except InputError:  # a file that is no longer there, or a package that is not installed
        return None


def stream_notes(stream: Stream, settings: Mapping[str, Any]) -> list[str]:
    """Return sentences on a stream: what it is, what is otherwise here, and its pitfalls.

    Args:
        stream: The stream.
        settings: The part `stream` of a config, as JSON.
    """
    notes = [text for text in (stream.title, stream.source) if text]
    if stream.as_published:
        notes.append(f"As published: {stream.as_published}")
    notes += [f"Otherwise here: {text}" for text in list_changes(stream, settings)]
    return notes + [f"Take care: {text}" for text in stream.pitfalls]


def stream_section(config: Mapping[str, Any]) -> list[str]:
    """Return the lines of Markdown on the stream that a config names; none if it names none.

    Args:
        config: Settings by part, as JSON.
    """
    stream = named_stream(config)
    if stream is None:
        return []
    settings = config["stream"]
    lines = ["", f"## The stream {for_markdown(settings['name'])}", ""]
    lines += [f"- {for_markdown(text)}" for text in stream_notes(stream, settings)]
    if rows := published_rows(stream.published):
        table = [PUBLISHED_COLUMNS, ["---"] * len(PUBLISHED_COLUMNS), *rows]
        lines += ["", *(f"| {' | '.join(map(for_markdown, row))} |" for row in table)]
        lines += ["", NOT_OURS]
    return lines


def published_rows(results: Sequence[PublishedResult]) -> list[list[str]]:
    """Return the cells of published results, a row each, in the order of `PUBLISHED_COLUMNS`."""
    return [
        [
            result.method,
            result.model,
            _score(result),
            "yes" if result.knows_task else "no",
            f"{result.source}{' (as others quote it)' if result.quoted else ''}",
        ]
        for result in results
    ]


def list_changes(stream: Stream, settings: Mapping[str, Any]) -> list[str]:
    """List in which tasks and settings a stream part differs from the stream that it names."""
    tasks, own = list(settings["tasks"]), stream.tasks()
    changes = []
    if len(tasks) < len(own):
        changes.append(f"{len(tasks)} of the {len(own)} tasks")
    elif tasks != own:
        changes.append("another order of the tasks")
    return changes + [
        f"{key} {_show_value(settings[key])} in place of {_show_value(value)}"
        for key, value in stream.settings.items()
        if key not in ("data", "task_settings") and settings.get(key, value) != value
    ]


def _score(result: PublishedResult) -> str:
    average = "" if result.average is None else f"{result.average:.1f}"
    if average and result.over:
        average += f", mean over {result.over}"
    tasks = ", ".join(f"{task} {score:.1f}" for task, score in result.by_task.items())
    return "; ".join(part for part in (average, tasks) if part)


def _show_value(value: object) -> str:
    return "all" if value is None else str(value)

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

__all__ = ["PUBLISHED_COLUMNS", "list_changes", "published_rows", "stream_section"]

PUBLISHED_COLUMNS = ("published by others", "model", "score in %", "told the task", "source")
"""Columns of a table of published results."""


def stream_section(config: Mapping[str, Any]) -> list[str]:
    """Return the lines of Markdown on the stream that a config names; none if it names none.

    Args:
        config: Settings by part, as JSON.
    """
    settings = config.get("stream", {})
    name = settings.get("name")
    try:
        stream = find_stream(name) if name else None
    except InputError:  # a file that is no longer there, or a package that is not installed
        return []
    if stream is None:
        return []
    said = [stream.title, stream.source]
    lines = ["", f"## The stream {for_markdown(name)}", ""]
    lines += [f"- {for_markdown(text)}" for text in said if text]
    if stream.as_published:
        lines += [f"- As published: {for_markdown(stream.as_published)}"]
    lines += [f"- Otherwise here: {for_markdown(text)}" for text in list_changes(stream, settings)]
    lines += [f"- Take care: {for_markdown(text)}" for text in stream.pitfalls]
    if rows := published_rows(stream.published):
        table = [PUBLISHED_COLUMNS, ["---"] * len(PUBLISHED_COLUMNS), *rows]
        lines += ["", *(f"| {' | '.join(map(for_markdown, row))} |" for row in table)]
        lines += ["", "These are results of other models under the published protocol. They enter "
                  "no mean, interval or test of this page. A method that is not told the task "
                  "solves a harder problem than one that is."]  # fmt: skip
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
        f"{key} {_shown(settings[key])} in place of {_shown(value)}"
        for key, value in stream.settings.items()
        if key not in ("data", "task_settings") and settings.get(key, value) != value
    ]


def _score(result: PublishedResult) -> str:
    average = "" if result.average is None else f"{result.average:.1f}"
    if average and result.over:
        average += f", mean over {result.over}"
    tasks = ", ".join(f"{task} {score:.1f}" for task, score in result.by_task.items())
    return "; ".join(part for part in (average, tasks) if part)


def _shown(value: object) -> str:
    return "all" if value is None else str(value)

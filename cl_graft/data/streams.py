"""Streams: named lists of tasks with their protocol, and what was published on them.

The field's streams are YAML files in the folder `published`; users and other packages add streams
by a file of their own or by `register_stream`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from cl_graft.errors import InputError, nearest
from cl_graft.runtime.registry import Registry
from cl_graft.runtime.settings import settings_class

PROTOCOL = (
    *("scenario", "classes_per_experience", "data", "shots", "shots_short"),
    *("max_train", "max_dev", "max_test", "max_length", "task_settings"),
)
"""Settings of a config that a stream can make."""

TaskNames = Callable[[], Sequence[str | Path]]
"""A function that returns the names of a stream's tasks, in order."""

_Names = TypeVar("_Names", bound=TaskNames)


@settings_class
class PublishedResult:
    """A result that others published on a stream, as they report it."""

    method: str = Field(description="Name of the method.")
    model: str = Field(description="Name of the model.")
    average: float | None = Field(default=None, description="Average score at the end, in %.")
    by_task: dict[str, float] = Field(
        default_factory=dict, description="Score at the end by task, in %."
    )
    over: str = Field(default="", description="What the average is over, besides the tasks.")
    knows_task: bool = Field(description="Whether the model knows the task of a text.")
    source: str = Field(description="Paper and table.")
    quoted: bool = Field(
        default=False,
        description="Whether the number was read where others quote it, not in its source.",
    )


@dataclass(frozen=True)
class Stream:
    """A stream that has a name.

    Attributes:
        names: Function that returns the names of its tasks, as `load_task` takes them.
        source: Paper or address that the stream comes from; empty if there is none.
        settings: Values of `PROTOCOL` that hold where a config does not say otherwise.
        title: Line that says what it is.
        as_published: Protocol of the publication: rows, metric and prompt.
        published: Results that others published.
        pitfalls: Sentences that who uses the stream should know.
        needs_folder: Whether its tasks are read from a folder of data sets only.
    """

    names: TaskNames
    source: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    as_published: str = ""
    published: tuple[PublishedResult, ...] = ()
    pitfalls: tuple[str, ...] = ()
    needs_folder: bool = False

    def tasks(self) -> list[str]:
        """Return the names of the tasks."""
        return [str(name) for name in self.names()]


def _register_published() -> None:
    from cl_graft.data.stream_files import PUBLISHED, read_stream_file

    for path in sorted(PUBLISHED.glob("*.yaml")):
        for name, stream in read_stream_file(path).items():
            STREAMS.register(name, stream)


STREAMS: Registry[Stream] = Registry(
    "stream", group="cl_graft.streams", load_own=_register_published
)
"""Streams by name."""


def register_stream(name: str, *, source: str = "", **settings: Any) -> Callable[[_Names], _Names]:
    """Register a function that names the tasks of a stream; used as a decorator.

    The function takes no arguments and returns the names of the tasks in order: presets, built-in
    tasks, paths of files or folders, or names on the hub. It is called when a config names the
    stream among its tasks, which then stands for all of them.

    A package that is installed beside this one registers its streams when this package looks one
    up: it names its module as an entry point of the group ``cl_graft.streams``.

    Args:
        name: Name of the stream.
        source: Paper or address that the stream comes from.
        **settings: The stream's protocol: settings of a config that hold where the config does not
            say otherwise, of those in `PROTOCOL`.

    Raises:
        ValueError: If the name is taken or cannot be a name, or a setting is none of a protocol.

    Examples:
        >>> @register_stream("requests", shots=64, max_test=100)
        ... def requests():
        ...     return ["scope", "topic"]
        >>> expand_streams(["requests", "entailment"])
        (['scope', 'topic', 'entailment'], {'shots': 64, 'max_test': 100})
    """
    check_stream_name(name)
    others = sorted(set(settings) - set(PROTOCOL))
    if others:
        raise ValueError(
            f"stream {name!r}: a protocol cannot set {', '.join(others)}; it can set "
            f"{', '.join(PROTOCOL)}"
        )

    def register(names: _Names) -> _Names:
        STREAMS.register(name, Stream(names, source, settings))
        return names

    return register


def check_stream_name(name: str) -> None:
    """Refuse a name that a list of tasks would read otherwise."""
    if not name.strip() or set(name) & set(",/:\\") or name != name.strip():
        raise ValueError(
            f"the name of a stream has no comma, colon or slash and is not empty, got {name!r}"
        )


def find_stream(name: str) -> Stream:
    """Return a stream by its name, or by the YAML file that describes it."""
    from cl_graft.data.stream_files import find_in_file

    found = find_in_file(name)
    return STREAMS.find(name) if found is None else found


def take_stream(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given settings of a part `stream`, completed by those of the stream it names."""
    stream = find_stream(name)
    own = stream.tasks()
    if not own:
        raise InputError(f"the stream {name!r} names no tasks")
    tasks = expand_streams(given["tasks"], given=given)[0] if given.get("tasks") else own
    for task in tasks:
        if task not in own:
            raise InputError(f"the stream {name!r} has no task {task!r}; {nearest(task, own)}")
    settings = {**stream.settings, **given, "tasks": tasks}
    known, changed = stream.settings.get("task_settings") or {}, given.get("task_settings") or {}
    by_task: dict[str, Any] = {task: known[task] for task in tasks if task in known}
    for task, values in dict(changed).items():
        both = isinstance(values, Mapping) and task in by_task
        by_task[task] = {**by_task[task], **values} if both else values
    settings["task_settings"] = by_task
    _refuse_no_folder(name, stream, settings)
    return settings


def _refuse_no_folder(name: str, stream: Stream, settings: Mapping[str, Any]) -> None:
    if stream.needs_folder and settings.get("data") is None:
        first = stream.tasks()[0]
        place = stream.settings.get("task_settings", {}).get(first, {}).get("rows_from", first)
        raise InputError(
            f"the tasks of the stream {name!r} are not on the hub in a form that is read here: "
            f"name with stream.data (--data DIR) the folder that holds {place}/train.jsonl and the "
            "like"
        )


def expand_streams(
    names: Sequence[str], *, given: Mapping[str, Any] | None = None
) -> tuple[list[str], dict[str, Any]]:
    """Replace the names of streams by the names of their tasks."""
    given = given or {}
    tasks: list[str] = []
    settings: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for name in names:
        stream = STREAMS.get(name)
        own = [name] if stream is None else stream.tasks()
        if not own:
            raise InputError(f"the stream {name!r} names no tasks")
        tasks += own
        protocol = {} if stream is None else stream.settings
        if stream is not None:
            _refuse_no_folder(name, stream, {**protocol, **given})
        for key, value in protocol.items():
            if key in given:
                continue
            if settings.setdefault(key, value) != value:
                raise InputError(
                    f"the streams {owners[key]!r} and {name!r} set {key} to {settings[key]!r} and "
                    f"{value!r}: name one of them, or set {key} yourself"
                )
            owners.setdefault(key, name)
    return tasks, settings


@register_stream("built_in")
def _built_in() -> list[str]:
    """All built-in tasks."""
    from cl_graft.data.presets import BUILT_IN

    return [*BUILT_IN]

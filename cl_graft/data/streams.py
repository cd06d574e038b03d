"""Streams: named lists of tasks with their protocol, and what was published on them.

The field's streams are YAML files in the folder `published`; users and other packages add streams
by a file of their own or by `register_stream`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from cl_graft.data.dataset_presets import BUILT_IN
from cl_graft.data.yaml_files import read_yaml_file
from cl_graft.errors import InputError, nearest
from cl_graft.runtime.registry import Registry
from cl_graft.runtime.settings import describe_faults, settings_class

PROTOCOL = (
    *("scenario", "classes_per_experience", "data", "shots"),
    *("max_train", "max_dev", "max_test", "max_length", "task_settings"),
)
"""Settings of a config that a stream can make."""

PUBLISHED = Path(__file__).parent / "published"
"""The folder of the streams that this package knows."""

_PROTOCOL = tuple(name for name in PROTOCOL if name != "task_settings")
_NAMED = re.compile(r"(.+\.ya?ml)(?::(.+))?", re.IGNORECASE)

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


@settings_class
class StreamFile:
    """What a stream file holds."""

    title: str = Field(default="", description="Line that says what the stream is.")
    source: str = Field(default="", description="Papers and addresses that it comes from.")
    needs_folder: bool = Field(
        default=False,
        description="Whether the tasks are read from a folder of data sets only, as the hub has "
        "them in no form that is read here.",
    )
    tasks: dict[str, dict[str, Any] | None] = Field(
        min_length=1,
        description="The tasks by name, each with its `task_settings`, such as the folder that its "
        "rows are in; null where it needs none.",
    )
    every_task: dict[str, Any] = Field(
        default_factory=dict,
        description="`task_settings` of every task, where its own say nothing else.",
    )
    orders: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Tasks of each stream by its name; without it the file is one stream, which is "
        "called as the file is.",
    )
    protocol: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of the part `stream` that hold where a config does not say "
        "otherwise.",
    )
    as_published: str = Field(
        default="", description="The protocol of the publication: rows, metric and prompt."
    )
    published: list[PublishedResult] = Field(
        default_factory=list, description="Results that others published, with their source."
    )
    pitfalls: list[str] = Field(
        default_factory=list, description="Sentences that are said when the stream is used."
    )

    def __post_init__(self) -> None:
        for key in self.protocol:
            if key not in _PROTOCOL:
                raise ValueError(f"protocol: no setting {key!r} there; {nearest(key, _PROTOCOL)}")
        for name, tasks in self.orders.items():
            check_stream_name(name)
            for task in tasks:
                if task not in self.tasks:
                    raise ValueError(
                        f"orders.{name}: {task!r} is not among the tasks of the file; "
                        f"{nearest(task, self.tasks)}"
                    )
            if not tasks or len(set(tasks)) < len(tasks):
                raise ValueError(f"orders.{name}: each task once, and at least one, got {tasks}")

    def streams(self, name: str) -> dict[str, Stream]:
        """Return the streams of the file by name; where it has no orders, the one of that name."""
        stream = Stream(
            list,
            self.source,
            title=self.title,
            as_published=self.as_published,
            published=tuple(self.published),
            pitfalls=tuple(self.pitfalls),
            needs_folder=self.needs_folder,
        )
        return {
            stream_name: replace(
                stream, names=functools.partial(list, tasks), settings=self._settings(tasks)
            )
            for stream_name, tasks in (self.orders or {name: list(self.tasks)}).items()
        }

    def _settings(self, tasks: list[str]) -> dict[str, Any]:
        every = {task: {**self.every_task, **(self.tasks[task] or {})} for task in tasks}
        changed = {task: settings for task, settings in every.items() if settings}
        return {**self.protocol, "task_settings": changed} if changed else self.protocol


def read_stream_file(path: Path | str) -> dict[str, Stream]:
    """Read the streams of a file by name; `data` of the protocol is relative to its folder."""
    path = Path(path)
    values = read_yaml_file(path, kind="stream")
    try:
        file = TypeAdapter(StreamFile).validate_python(values)
    except ValidationError as error:
        faults = "; ".join(describe_faults(error, StreamFile).values())
        raise InputError(f"{path}: {faults}") from None
    if isinstance(data := file.protocol.get("data"), str):
        protocol = {**file.protocol, "data": str(path.parent / data)}
        file = replace(file, protocol=protocol)
    return file.streams(path.stem)


def _register_published() -> None:
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
    """Return a stream by its name, or that of a YAML file: its path, and ``:NAME`` of several."""
    named = _NAMED.fullmatch(name)
    if named is None:
        return STREAMS.find(name)
    path, order = Path(named[1]).expanduser(), named[2]
    streams = read_stream_file(path)
    if order is None and len(streams) == 1:
        return next(iter(streams.values()))
    if order is None:
        raise InputError(
            f"{path}: name one of its streams, as in {path}:{next(iter(streams))}; there are "
            f"{', '.join(streams)}"
        )
    if order not in streams:
        raise InputError(f"{path}: there is no stream {order!r}; {nearest(order, streams)}")
    return streams[order]


def take_stream(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given settings of a part `stream`, completed by those of the stream it names."""
    stream = find_stream(name)
    offered = stream.tasks()
    if not offered:
        raise InputError(f"the stream {name!r} names no tasks")
    tasks = expand_streams(given["tasks"], given=given)[0] if given.get("tasks") else offered
    for task in tasks:
        if task not in offered:
            raise InputError(f"the stream {name!r} has no task {task!r}; {nearest(task, offered)}")
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
        folder = stream.settings.get("task_settings", {}).get(first, {}).get("rows_from", first)
        raise InputError(
            f"the tasks of the stream {name!r} are not on the hub in a form that is read here: "
            f"name with stream.data (--data DIR) the folder that holds {folder}/train.jsonl and "
            "the like"
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
        members = [name] if stream is None else stream.tasks()
        if not members:
            raise InputError(f"the stream {name!r} names no tasks")
        tasks += members
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
    return [*BUILT_IN]

"""Stream files: YAML that describes a stream, or several orders of the same tasks.

The streams of the field that this package knows are such files, in the folder `published`; a user's
own file has the same form.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from cl_graft.data.streams import PROTOCOL, PublishedResult, Stream, check_stream_name
from cl_graft.data.yaml_files import read_yaml_file
from cl_graft.errors import InputError, nearest
from cl_graft.runtime.settings import describe_faults, settings_class

PUBLISHED = Path(__file__).parent / "published"
"""The folder of the streams that this package knows."""

_PROTOCOL = tuple(name for name in PROTOCOL if name != "task_settings")
_NAMED = re.compile(r"(.+\.ya?ml)(?::(.+))?", re.IGNORECASE)


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
            own: replace(
                stream, names=functools.partial(list, tasks), settings=self._settings(tasks)
            )
            for own, tasks in (self.orders or {name: list(self.tasks)}).items()
        }

    def _settings(self, tasks: list[str]) -> dict[str, Any]:
        every = {task: {**self.every_task, **(self.tasks[task] or {})} for task in tasks}
        own = {task: settings for task, settings in every.items() if settings}
        return {**self.protocol, "task_settings": own} if own else self.protocol


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


def find_in_file(name: str) -> Stream | None:
    """Return the stream of a file, named by its path and ``:NAME`` where it has several."""
    named = _NAMED.fullmatch(name)
    if named is None:
        return None
    path, order = Path(named[1]).expanduser(), named[2]
    streams = _read_once(path, path.stat().st_mtime_ns if path.is_file() else 0)
    if order is None and len(streams) == 1:
        return next(iter(streams.values()))
    if order is None:
        raise InputError(f"{path}: name one of its streams, as in {path}:{next(iter(streams))}; "
                         f"there are {', '.join(streams)}")  # fmt: skip
    if order not in streams:
        raise InputError(f"{path}: there is no stream {order!r}; {nearest(order, streams)}")
    return streams[order]


@functools.lru_cache(maxsize=16)
def _read_once(path: Path, changed: int) -> Mapping[str, Stream]:
    """Read a file that was changed at a time: a config is checked many times in a run."""
    del changed
    return read_stream_file(path)

"""Streams: named lists of tasks with the settings of their protocol.

They are apart from tasks because one name stands for several tasks, and other packages can add
names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cl_graft.errors import InputError
from cl_graft.runtime.registry import Registry

__all__ = ["PROTOCOL", "STREAMS", "Stream", "expand_streams", "register_stream"]

PROTOCOL = (
    *("scenario", "classes_per_experience", "data", "shots", "shots_short"),
    *("max_train", "max_dev", "max_test", "max_length", "task_settings"),
)
"""Settings of a config that a stream can make."""

TaskNames = Callable[[], Sequence[str | Path]]
"""A function that returns the names of a stream's tasks, in order."""

_Names = TypeVar("_Names", bound=TaskNames)


@dataclass(frozen=True)
class Stream:
    """A registered stream.

    Attributes:
        names: Function that returns the names of its tasks, as `load_task` takes them.
        source: Paper or address that the stream comes from; empty if there is none.
        settings: Values of `PROTOCOL` that hold where a config does not say otherwise.
    """

    names: TaskNames
    source: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


STREAMS: Registry[Stream] = Registry("stream", group="cl_graft.streams")
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
        >>> @register_stream("two_grammars", shots=64, max_test=100)
        ... def two_grammars():
        ...     return ["sentiment", "topic"]
        >>> expand_streams(["two_grammars", "urgency"])
        (['sentiment', 'topic', 'urgency'], {'shots': 64, 'max_test': 100})
    """
    if not name.strip() or set(name) & set(",/:\\") or name != name.strip():
        raise ValueError(
            f"the name of a stream has no comma, colon or slash and is not empty, got {name!r}"
        )
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


def expand_streams(
    names: Sequence[str], *, given: Collection[str] = ()
) -> tuple[list[str], dict[str, Any]]:
    """Replace the names of streams, and ranges of generated tasks, by the names of their tasks.

    Args:
        names: Names of tasks and streams; ``"shared-50-0..19"`` is a range of 20 tasks.
        given: Settings that the caller makes, which no protocol does.

    Returns:
        The names of tasks, and the settings of the streams' protocols.

    Raises:
        InputError: If a stream names no tasks, two streams set the same thing differently, or a
            range goes down.
    """
    # Imported here: the grammars build their word tables on import.
    from cl_graft.data.synthetic import expand_range

    tasks: list[str] = []
    settings: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for name in names:
        stream = STREAMS.get(name)
        own = [name] if stream is None else [str(task) for task in stream.names()]
        if not own:
            raise InputError(f"the stream {name!r} names no tasks")
        tasks += [task for given in own for task in expand_range(given)]
        protocol = {} if stream is None else stream.settings
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


@register_stream("generated")
def _generated() -> list[str]:
    """All built-in tasks that grammars write."""
    from cl_graft.data.synthetic import GENERATED

    return [*GENERATED]


@register_stream("shared-50")
def _shared() -> list[str]:
    """Twenty generated tasks that have half of their words in common."""
    return ["shared-50-0..19"]


@register_stream("opposed-50")
def _opposed() -> list[str]:
    """Twenty generated tasks whose common words change sides with every task."""
    return ["opposed-50-0..19"]

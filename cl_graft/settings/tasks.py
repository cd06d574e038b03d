"""The tasks of a stream, loaded, checked, and made the experiences of its scenario."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from cl_graft.data import TextTask, load_task, number_classes, share_labels
from cl_graft.data.audit import find_shared_rows
from cl_graft.data.encoded_task import encode_task
from cl_graft.data.streams import find_stream
from cl_graft.data.task_place import find_place
from cl_graft.errors import InputError, nearest
from cl_graft.kinds.prompts import Family
from cl_graft.kinds.text_task import check_task_name
from cl_graft.models import Loaded, longest_row
from cl_graft.settings.run_files import RunRecord
from cl_graft.settings.stream_settings import StreamSettings, StreamTaskSettings

_ROWS_TRIED = 4


def load_tasks(stream: StreamSettings, *, seed: int) -> tuple[TextTask, ...]:
    """Load the tasks of a stream for the run with a seed, in the stream's scenario.

    Test rows of a task that another task learns from are counted in the notes of its `source`.
    """
    _refuse_missing(stream)
    for name in stream.task_settings:
        if name not in stream.tasks:
            raise InputError(f"task_settings: no task {name!r} here; {nearest(name, stream.tasks)}")
    tasks = tuple(_load(name, stream, seed) for name in stream.tasks)
    for name, count in Counter(task.name for task in tasks).items():
        if count > 1:
            raise InputError(f"{count} of the tasks are called {name!r}: results go by task name")
    told = [cast(list[str], task.source["notes"]) for task in tasks]
    tasks = tuple(
        replace(task, source={**task.source, "notes": [*notes, *shared]})
        for task, notes, shared in zip(tasks, told, find_shared_rows(tasks), strict=True)
    )
    return fit_scenario(tasks, stream)


def tasks_to_build_on(
    stream: StreamSettings, tasks: Sequence[TextTask]
) -> dict[int, tuple[str, ...]]:
    """Return the names of the tasks that a task may build on, by task label, where named."""
    names = dict(zip(stream.tasks, (task.name for task in tasks), strict=False))
    return {
        label: tuple(names[other] for other in settings.builds_on)
        for label, given in enumerate(stream.tasks)
        if (settings := stream.task_settings.get(given)) is not None
        and settings.builds_on is not None
    }


def check_tasks(tasks: Sequence[TextTask], loaded: Loaded, stream: StreamSettings) -> None:
    """Try prompts, label words and lengths on a few rows of each task, before any computing."""
    length = stream.max_length or max(task.max_length for task in tasks)
    most = longest_row(loaded.model)
    if most is not None and length > most:
        raise InputError(
            f"max_length must be at most {most}, the positions of {loaded.name!r}, got {length}"
        )
    for task in tasks:
        few = replace(
            task,
            **{
                split: task.own_kind.choose_tried(rows, _ROWS_TRIED)
                for split, rows in task.splits.items()
            },
        )
        encode_task(
            few, loaded.tokenizer, family=cast(Family, loaded.model.family), max_length=length
        )


def refuse_other_data(result: RunRecord, tasks: Sequence[TextTask]) -> None:
    """Refuse tasks whose rows are not those of a finished run."""
    now = {task.name: task.fingerprint for task in tasks}
    changed = [name for name in now if result.data_fingerprints.get(name) != now[name]]
    if changed:
        raise InputError(
            f"the data of {', '.join(changed)} changed since {result.strategy} with seed "
            f"{result.seed} was run; choose another output folder"
        )


def fit_scenario(tasks: Sequence[TextTask], stream: StreamSettings) -> tuple[TextTask, ...]:
    """Make the experiences of a stream from its tasks, as its scenario asks."""
    for task in tasks if stream.scenario != "task" else ():
        if not task.own_kind.needs_classes:
            raise InputError(
                f"in the scenario {stream.scenario!r} tasks share a head of classes; "
                f"{task.name!r} is a task of {task.own_kind.title}"
            )
    if stream.scenario == "domain":
        return share_labels(tasks)
    if stream.scenario == "class":
        return number_classes(tasks, size=stream.classes_per_experience)
    return tuple(tasks)


def _refuse_missing(stream: StreamSettings) -> None:
    """Refuse a folder that lacks tasks of the named stream, before any of them is read."""
    if stream.name is None or stream.data is None or not find_stream(stream.name).needs_folder:
        return
    if not stream.data.exists():
        raise InputError(f"{stream.data}: there is no such file or folder")
    missing = {}
    for name in stream.tasks:
        folder = stream.task_settings.get(name, StreamTaskSettings()).rows_from or name
        try:
            path = find_place(folder, stream.data).path
        except InputError:
            path = None
        if path is None:
            missing[name] = stream.data / folder
    if missing:
        first = next(iter(missing.values()))
        raise InputError(
            f"{stream.data}: of the stream {stream.name!r} there is no data for "
            f"{', '.join(missing)}; looked for {first}/train.jsonl (.csv, .parquet, …), its test "
            f"file{' and the like' if len(missing) > 1 else ''}; put them there, or name with "
            "stream.tasks the tasks that are there"
        )


def _load(name: str, stream: StreamSettings, seed: int) -> TextTask:
    rows_from = stream.task_settings.get(name, StreamTaskSettings()).rows_from
    has_columns = not find_place(rows_from or name, stream.data).built_in
    settings = stream.read_settings(name, seed=seed, has_columns=has_columns)
    if rows_from is None:
        return load_task(name, settings, data=stream.data, warn=False)
    try:
        task = load_task(rows_from, settings, data=stream.data, warn=False)
        return replace(task, name=check_task_name(name))
    except InputError as error:
        raise InputError(f"task {name!r}: {error}") from None

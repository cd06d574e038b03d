"""Settings of the part `stream`: the tasks to learn, and the rows of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import ArgsKwargs

from cl_graft.data.streams import expand_streams, take_stream
from cl_graft.data.task_settings import RowSettings, TaskSettings
from cl_graft.errors import nearest
from cl_graft.runtime.settings import list_fields, settings_class


@settings_class
class StreamTaskSettings(RowSettings):
    """Columns, labels and metric of one task of a stream, and where its rows are."""

    rows_from: str | None = Field(
        default=None,
        description="Where the task's rows are, if not under its own name: a folder or file of "
        "`stream.data`, a preset or a hub name. Several tasks may share one.",
    )
    builds_on: list[str] | None = Field(
        default=None,
        description="Earlier tasks of the stream that grafting may build on (and what these build "
        "on), by the names that they have in `stream.tasks`; null means all.",
    )

    @field_validator("builds_on", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return split_at_commas(value)


@settings_class
class StreamSettings:
    """The tasks to learn, and the rows of each."""

    name: str | None = Field(
        default=None,
        description="A published or registered stream (cl-graft streams lists them), or the YAML "
        "file of one. It sets the tasks and the settings of its protocol, unless they are set "
        "here. `tasks` may then name some of its tasks, or another order.",
    )
    tasks: list[str] = Field(
        min_length=1,
        description="The tasks in the order of the stream: names of presets or of built-in tasks, "
        "paths of files or folders, hub names, or registered streams of them.",
    )
    scenario: Literal["task", "domain", "class"] = Field(
        default="task",
        description="'task': one head per task, picked by the task's label. 'domain': tasks with "
        "the same labels, one head, no task label. 'class': the labels of all tasks in one head, "
        "no task label.",
    )
    classes_per_experience: int | None = Field(
        default=None,
        ge=1,
        description="In the scenario 'class', split tasks into experiences of this many classes; "
        "null: a task is one experience.",
    )
    data: Path | None = Field(
        default=None,
        description="Folder that holds one folder or file per task; relative to the current one.",
    )
    text: str | None = Field(
        default=None,
        description="Column of the first text, of tasks whose own settings name no column; null "
        "finds it.",
    )
    text_pair: str | None = Field(
        default=None, description="Column of the second text of these tasks."
    )
    label: str | None = Field(
        default=None, description="Column of the label of these tasks; null finds it."
    )
    shots: int | None = Field(
        default=512,
        ge=1,
        description="Training rows per class, or of a whole task that has no classes; a class with "
        "fewer gives all its rows, with a note. null takes all.",
    )
    data_seed: int | None = Field(
        default=None,
        ge=0,
        description="Seed of the samples of rows; null means the run's own seed.",
    )
    max_train: int | None = Field(
        default=None, ge=1, description="Largest number of training rows of a task; null: all."
    )
    max_dev: int | None = Field(
        default=256,
        ge=1,
        description="Largest number of dev rows of a task; null: all. Checkpoints, masks and "
        "budgets are chosen on them, and evaluating many costs as much as training.",
    )
    max_test: int | None = Field(
        default=1000, ge=1, description="Largest number of test rows of a task; null: all."
    )
    evaluate_ahead: Literal["always", "once", "never"] = Field(
        default="always",
        description="When a model that can answer tasks before it learns them (a language model, a "
        "head that all tasks share) is evaluated on them: before the first task and after each "
        "('always', which forward transfer needs), before the first task alone ('once': zero-shot "
        "scores), or 'never'.",
    )
    max_length: int | None = Field(
        default=64,
        ge=4,
        description="Tokens per row; null takes the largest number that one of the tasks asks for.",
    )
    on_bad_row: Literal["error", "skip"] = Field(
        default="error",
        description="What to do with a row that cannot be used: stop with an error, or leave the "
        "row out and count it in the results.",
    )
    task_settings: dict[str, StreamTaskSettings] = Field(
        default_factory=dict, description="By task: columns, label names, metric, encoding."
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_streams(cls, given: Any) -> Any:
        values = given.kwargs if isinstance(given, ArgsKwargs) else given
        if not isinstance(values, Mapping):
            return given
        name, names = values.get("name"), split_at_commas(values.get("tasks"))
        if names is None and isinstance(name, str):
            names = []
        if not isinstance(names, list) or not all(isinstance(task, str) for task in names):
            return given
        if isinstance(name, str):
            expanded = take_stream(name, {**values, "tasks": names})
        else:
            tasks, protocol = expand_streams(names, given=values)
            expanded = {**protocol, **values, "tasks": tasks}
        return ArgsKwargs((), expanded) if isinstance(given, ArgsKwargs) else expanded

    @field_validator("tasks")
    @classmethod
    def _name_each_once(cls, value: list[str]) -> list[str]:
        return refuse_doubles(value)

    def __post_init__(self) -> None:
        if self.classes_per_experience is not None and self.scenario != "class":
            raise ValueError(
                f"classes_per_experience is for scenario 'class', and scenario is {self.scenario!r}"
            )

        for name, settings in self.task_settings.items():
            if settings.builds_on is not None and name in self.tasks:
                self._check_builds_on(name, settings.builds_on)

    def _check_builds_on(self, name: str, names: list[str]) -> None:
        if self.scenario != "task":
            raise ValueError(
                f"task_settings.{name}.builds_on is for the scenario 'task', and scenario is "
                f"{self.scenario!r}"
            )
        before = self.tasks[: self.tasks.index(name)]
        for other in names:
            if other not in self.tasks:
                fault = f"no task {other!r} in the stream; {nearest(other, before or self.tasks)}"
            elif other == name:
                fault = f"{name!r} cannot build on itself"
            elif other not in before:
                fault = f"{other!r} comes later in the stream than {name!r}"
            else:
                continue
            raise ValueError(f"task_settings.{name}.builds_on: {fault}")

    def in_order(self, tasks: list[str]) -> dict[str, Any]:
        """Return what changes in another order of the tasks: those they may build on, too."""
        narrowed = {
            name: replace(settings, builds_on=[t for t in settings.builds_on if t in before])
            for name, settings in self.task_settings.items()
            if settings.builds_on is not None and name in tasks
            for before in [tasks[: tasks.index(name)]]
        }
        changed: dict[str, Any] = {"tasks": list(tasks)}
        return changed | ({"task_settings": {**self.task_settings, **narrowed}} if narrowed else {})

    def read_settings(self, task: str, *, seed: int, has_columns: bool) -> TaskSettings:
        """Return the settings with which a run of a seed reads a task: its own, or the stream's."""
        settings = self.task_settings.get(task, StreamTaskSettings())
        values = {name: getattr(settings, name) for name in list_fields(RowSettings)}
        columns = ("text", "text_pair", "label")
        shared = ("shots", "max_train", "max_dev", "max_test", "on_bad_row")
        if has_columns and all(values[name] is None for name in columns):
            shared += columns
        values |= {name: getattr(self, name) for name in shared}
        return TaskSettings(**values, data_seed=self.sample_seed(seed))

    def sample_seed(self, seed: int) -> int:
        """Return the seed of the samples of rows of the run with a seed."""
        return seed if self.data_seed is None else self.data_seed


def split_at_commas(value: Any) -> Any:
    """Return the parts of a text between its commas; anything else as it is."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def refuse_doubles(value: list[Any]) -> list[Any]:
    """Return a list in which nothing stands twice."""
    doubled = sorted({str(item) for item in value if value.count(item) > 1})
    if doubled:
        raise ValueError(f"{', '.join(doubled)} is named twice")
    return value

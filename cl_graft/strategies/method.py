"""Methods of continual learning as they are registered: what each is, and its own settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, Literal, TypeVar

from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.training.templates import SupervisedTemplate
from avalanche.training.utils import ParamData
from torch import Tensor, nn

from cl_graft.errors import InputError, nearest
from cl_graft.kinds import TextTask
from cl_graft.localization.registry import Score
from cl_graft.models import TaskModel
from cl_graft.strategies.strategy_inputs import StrategyInputs

_Plugin = TypeVar("_Plugin")

Value = float | int | str | bool
"""A value of a setting."""

Family = Literal[
    "grafting",
    "ablation",
    "merging",
    "lower bound",
    "upper bound",
    "penalty",
    "distillation",
    "rehearsal",
    "isolation",
]
Trained = Literal["everything", "region", "per_task", "nothing"]
Stored = Literal["head", "entry", "model"]
Rows = Literal["task", "seen_tasks", "all_tasks"]
Kinds = Literal["any", "one", "classification"]

_BY_LABEL = "what is a task's own is picked by the task's label"
PICKED_BY_LABEL: Mapping[str, str] = {"domain": _BY_LABEL, "class": _BY_LABEL}
"""`Method.unsupported` of methods that cannot answer without task labels."""

_HEADS = "each task has a head of its own, as in the scenario 'task'"
HEAD_PER_TASK: Mapping[str, str] = {"domain": _HEADS, "class": _HEADS}
"""`Method.unsupported` of methods that pick the task, and with it the task's own head."""


@dataclass(frozen=True)
class Setting:
    """A setting of a method; a value has the type of its default.

    Attributes:
        name: The name in configs.
        default: The default value.
        meaning: Sentence that says what it does.
        min_value: The smallest value of a number; None where there is none.
        max_value: The largest value of a number; None where there is none.
        choices: The allowed names, for a name.
        grid: Values among which tuning on dev chooses; empty where it is not tuned.
        is_size: Whether it says how much a task stores, so that storage can be made equal.
    """

    name: str
    default: Value
    meaning: str
    min_value: float | None = None
    max_value: float | None = None
    choices: tuple[str, ...] = ()
    grid: tuple[Value, ...] = ()
    is_size: bool = False

    def check(self, value: Value, *, method: str) -> Value:
        """Return a value in the type of the default."""
        name, wanted = f"{method}.{self.name}", type(self.default)
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not wanted:
            kinds = {float: "a number", int: "a whole number", str: "a name", bool: "true or false"}
            raise InputError(f"{name} must be {kinds[wanted]}, got {value!r}")
        if isinstance(value, str):
            if self.choices and value not in self.choices:
                raise InputError(f"{name}: unknown {value!r}; {nearest(value, self.choices)}")
            return value
        # NaN is in no range.
        if self.min_value is not None and not value >= self.min_value:
            raise InputError(f"{name} must be at least {self.min_value:g}, got {value}")
        if self.max_value is not None and not value <= self.max_value:
            raise InputError(f"{name} must be at most {self.max_value:g}, got {value}")
        return value


def setting(default: Value, meaning: str, **limits: Any) -> Any:
    """Return the field of a method's class that is a setting.

    Args:
        default: The default value.
        meaning: Sentence that says what it does.
        **limits: More fields of `Setting`: bounds, choices, grid, and whether it is a size.
    """
    described = Setting("", default, meaning, **limits)
    return dataclasses.field(default=default, metadata={"setting": described})


@dataclass(frozen=True, eq=False)
class StreamShape:
    """Properties of a model and a stream that are known before a run.

    Attributes:
        model: The model.
        tasks: Number of tasks of the stream.
        classes: Number of classes of the task that has most.
        length: Number of tokens a row.
        batch_size: Rows a training step.
        localizer: How regions are found.
    """

    model: TaskModel
    tasks: int
    classes: int
    length: int
    batch_size: int
    localizer: str | Score

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of text as it is held: two 64-bit integers a token."""
        return 16 * self.length


@dataclass(frozen=True, kw_only=True, eq=False)
class Method:
    """A registered method.

    A method has a name, a class that builds a strategy, a family and a source; it says in which
    scenarios it cannot run. All else has a default.

    Attributes:
        name: The name in configs and on the command line.
        kind: The class of the method. Its fields are the settings, and it has the methods

            - ``build(inputs)``: returns the strategy;
            - ``storage_bytes(strategy)``, static: returns the bytes that the strategy holds between
              two tasks beside the one model with its heads, such as importances or rows of earlier
              tasks; without it, none;
            - ``state(strategy)``, static: returns what the strategy knows beside the bank and the
              cache, as tensors by name; without it, nothing;
            - ``load_state_(strategy, experiences, tensors)``, static: gives that to a new strategy
              in another process, whose model has the heads of these experiences; without it, a run
              that was interrupted begins anew;
            - ``task_bytes(shape)``: returns the bytes that a task adds beside its head, as the mean
              over a stream, and beside its graft where it has one;
            - ``largest_size(shape)``: returns the largest value of the setting that is a size;
            - ``check_stream(shape)``: raises `InputError` if model, stream or localizer do not
              serve the method.
        family: The family of the method; ablations are of grafting.
        source: Paper or library.
        unsupported: Reasons why it cannot run in scenarios of the config, by scenario.
        trains: Part that the strategy's own loop trains: every weight, a region (at the region's
            learning rate), parameters that each task has of its own, or nothing.
        stored_as: Part that a task adds to storage beside `storage_bytes`: its head, an entry of a
            bank, or a whole model.
        adds: Description of all that a task adds to storage.
        rows: Tasks whose rows are trained on when a task comes. The number of steps grows with
            them, so each row is used as often as where a task trains on its own rows alone.
        fixed_config: Settings of the experiment's config that the method fixes, by dotted name.
        config_grid: Values of fields of the experiment's config among which tuning chooses.
        encoders_only: Whether it needs an encoder's features.
        kinds: Kinds of tasks that it learns: any, several in a stream too; those of one kind, as a
            batch holds rows of several tasks; or classification alone, as it needs the class of
            each row.
        requires: Package that has to be installed for it; empty where none has.
    """

    name: str
    kind: type
    family: Family
    source: str
    unsupported: Mapping[str, str] = field(default_factory=dict)
    trains: Trained = "everything"
    stored_as: Stored = "head"
    adds: str = "its head"
    rows: Rows = "task"
    fixed_config: Mapping[str, Any] = field(default_factory=dict)
    config_grid: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    encoders_only: bool = False
    kinds: Kinds = "any"
    requires: str = ""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The method's own settings, in their order."""
        return tuple(
            dataclasses.replace(field.metadata["setting"], name=field.name)
            for field in dataclasses.fields(self.kind)
            if "setting" in field.metadata
        )

    @property
    def grid(self) -> dict[str, tuple[Value, ...]]:
        """The values among which tuning chooses, by setting or field of the config."""
        grids = {each.name: each.grid for each in self.settings if each.grid}
        return {**self.config_grid, **grids}

    @property
    def size_setting(self) -> str:
        """The setting that says how much a task stores; empty if there is none."""
        return next((each.name for each in self.settings if each.is_size), "")

    @property
    def is_bound(self) -> bool:
        """Whether it is a bound that others are compared with, not a continual-learning method."""
        return self.family in ("lower bound", "upper bound")

    @property
    def has_regions(self) -> bool:
        """Whether it trains regions, or merges grafts."""
        return self.trains == "region" or self.family == "merging"

    @property
    def has_size(self) -> bool:
        """Whether the bytes that a task adds are known before it is learned."""
        return hasattr(self.kind, "task_bytes")

    @property
    def is_resumable(self) -> bool:
        """Whether another process can resume an interrupted run, and need not begin it again."""
        return hasattr(self.kind, "load_state_")

    @property
    def unavailable(self) -> str:
        """Reason why it cannot run here; empty if it can."""
        if self.requires and find_spec(self.requires) is None:
            return f"it needs the package {self.requires}: pip install {self.requires}"
        return ""

    def check_tasks(self, tasks: Sequence[TextTask]) -> None:
        """Make sure that the method can learn tasks of these kinds."""
        for task in tasks:
            kind = task.own_kind.title
            if self.kinds == "classification" and not task.own_kind.needs_classes:
                raise InputError(
                    f"strategy {self.name!r} needs the class of each row, so it learns "
                    f"classification alone; {task.name!r} is a task of {kind}"
                )
            if self.kinds == "one" and task.kind != tasks[0].kind:
                raise InputError(
                    f"strategy {self.name!r} puts rows of several tasks into a batch, so all must "
                    f"be of one kind; {tasks[0].name!r} is a task of "
                    f"{tasks[0].own_kind.title}, {task.name!r} of {kind}"
                )

    @property
    def checks_stream(self) -> bool:
        """Whether the method checks a stream for more than families, scenarios and kinds."""
        return hasattr(self.kind, "check_stream")

    def check_stream(self, shape: StreamShape, values: Mapping[str, Value]) -> None:
        """Make sure that the method can learn a stream, with values of its settings."""
        if self.checks_stream:
            self._with(values).check_stream(shape)

    def check_settings(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Check values of the method's settings and add the defaults of the others."""
        known = {each.name: each for each in self.settings}
        for name in values:
            if not known:
                raise InputError(f"{self.name} has no settings of its own, got {name!r}")
            if name not in known:
                raise InputError(f"{self.name}: unknown setting {name!r}; {nearest(name, known)}")
        return {
            name: each.check(values.get(name, each.default), method=self.name)
            for name, each in known.items()
        }

    def build(self, inputs: StrategyInputs, values: Mapping[str, Value]) -> SupervisedTemplate:
        """Build the strategy with values of the method's settings."""
        return self._with(values).build(inputs)

    def storage_bytes(self, strategy: SupervisedTemplate) -> int:
        """Return the bytes that a strategy holds beside the one model with its heads."""
        return self.kind.storage_bytes(strategy) if hasattr(self.kind, "storage_bytes") else 0

    def state(self, strategy: SupervisedTemplate) -> dict[str, Tensor]:
        """Return what a strategy knows beside the bank and the cache, as tensors by name."""
        return self.kind.state(strategy) if hasattr(self.kind, "state") else {}

    def load_state_(
        self,
        strategy: SupervisedTemplate,
        experiences: Sequence[Any],
        tensors: Mapping[str, Tensor],
    ) -> None:
        """Give a new strategy what another one knew after these experiences."""
        self.kind.load_state_(strategy, experiences, tensors)

    def task_bytes(self, shape: StreamShape, values: Mapping[str, Value]) -> float:
        """Return the bytes that a task adds beside its head, with values of the settings."""
        return self._with(values).task_bytes(shape)

    def largest_size(
        self, shape: StreamShape, values: Mapping[str, Value], *, otherwise: int
    ) -> int:
        """Return the largest value of the setting that is a size; `otherwise` without a limit."""
        method = self._with(values)
        return method.largest_size(shape) if hasattr(method, "largest_size") else otherwise

    def _with(self, values: Mapping[str, Value]) -> Any:
        return self.kind(**self.check_settings(values))


def count_bytes(held: Any) -> int:
    """Return the bytes of all tensors in nested dictionaries, sequences, modules and data sets.

    A module counts with its parameters and buffers. A data set counts with the bytes of its first
    row times the number of rows.

    Examples:
        >>> import torch
        >>> count_bytes({"head": torch.zeros(10), "rows": [torch.zeros(2, dtype=torch.int64)]})
        56
    """
    if isinstance(held, Tensor):
        return held.nbytes
    if isinstance(held, ParamData):
        return count_bytes(held.data)
    if isinstance(held, nn.Module):
        return count_bytes([*held.parameters(), *held.buffers()])
    if isinstance(held, AvalancheDataset):
        return count_bytes(list(held[0])) * len(held) if len(held) else 0
    if isinstance(held, dict):
        return count_bytes(list(held.values()))
    if isinstance(held, list | tuple):
        return sum(count_bytes(part) for part in held)
    return 0


def count_stored(kind: type, *attributes: str) -> Any:
    """Return the `storage_bytes` of a method that stores what some attributes hold.

    For example::

        storage_bytes = count_stored(EWCPlugin, "saved_params", "importances")

    Args:
        kind: Class of the plugin, or of the strategy itself, that has the attributes.
        *attributes: Their names, dotted where they lie deeper.
    """

    def storage_bytes(strategy: SupervisedTemplate) -> int:
        """Return the bytes that the strategy holds between tasks."""
        owner = strategy if isinstance(strategy, kind) else find_plugin(strategy, kind)
        return sum(count_bytes(attrgetter(name)(owner)) for name in attributes)

    return staticmethod(storage_bytes)


def find_plugin(strategy: SupervisedTemplate, kind: type[_Plugin]) -> _Plugin:
    """Return the strategy's plugin of a class."""
    return next(plugin for plugin in strategy.plugins if isinstance(plugin, kind))

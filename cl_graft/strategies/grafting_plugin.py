"""GraftingPlugin: forget-free continual learning inside any Avalanche strategy.

A dense run and localization find a task's region when its experience starts (Panigrahi et al.,
2023, App. C.3, https://arxiv.org/abs/2302.06600). The strategy's own loop trains the region's free
part and the head, which become an entry of the bank when the experience ends.

Runs at: before_training, before_train_dataset_adaptation, before_training_exp,
before_training_epoch, before_training_iteration, before_forward, after_update,
after_training_iteration, after_training_exp, before_eval, before_eval_exp, after_eval_exp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary, ref

from avalanche.core import SupervisedPlugin
from torch import Tensor, nn

from cl_graft.errors import InputError, nearest
from cl_graft.grafts.bank import BaseIdentity, GraftBank
from cl_graft.grafts.hashing import fingerprint_weights
from cl_graft.inference.task_switch import Switch
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.region_search import find_region
from cl_graft.runtime.checkpoints import Checkpoints, State
from cl_graft.runtime.error_context import in_task
from cl_graft.runtime.run_context import Cache, PhaseProgress, RunContext
from cl_graft.strategies.bank_on_model import BankOnModel
from cl_graft.strategies.experience_tasks import (
    ExperienceEntries,
    ExperienceTasks,
    TaskLabels,
    find_label,
    has_labels,
    is_same_experience,
    warn_of_no_labels,
)
from cl_graft.strategies.loop.phase_reports import PhaseReports
from cl_graft.strategies.loop.steps_and_rates import check_loss
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.strategy_checks import (
    check_arguments,
    check_instance,
    check_model,
    check_optimizer,
    check_plugins,
    check_rows,
)
from cl_graft.strategies.task_heads import FirstValues, HeldHeads, load_head_, unwrap_model
from cl_graft.strategies.task_training import TaskMetadata, TaskTraining
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.learnable_task import LearnableTask, Passes
from cl_graft.training.train_mode import freeze_statistics

_LAST_TRAINED: WeakKeyDictionary[nn.Module, ref[GraftingPlugin]] = WeakKeyDictionary()
"""The plugin that trained each model last: its training may have been interrupted."""


class GraftingPlugin(SupervisedPlugin, supports_distributed=True):
    """Make a strategy learn every task as a graft.

    The strategy's optimiser object is kept: while an experience trains, its first group holds the
    region's vector and its last group the head, so with two groups each has its own learning rate,
    momentum and weight decay, and with one group both share them. Its state starts empty;
    afterwards it gets its own parameters back. Plugins that reach into ``model.parameters()`` in a
    step (EWC, SI, A-GEM and the like) cannot act on a region and are refused. Without task labels
    nothing is protected: the strategy behaves exactly as it would without the plugin, and a warning
    says so, once. A model that another plugin trained is put back to its base first, heads
    included.

    Args:
        settings: Density, localizer, dense run…; None means the defaults.
        by_label: Settings of single tasks, by task label, in place of `settings`; mode and seed
            are always those of `settings`.
        bank: A bank to extend; the model must be its base, or carry an entry of the bank that a
            plugin in this process put there. None starts an empty bank.
        task_labels: Source of task labels: ``"stream"`` takes the stream's own; ``"experience"``
            takes the index of an experience, for streams without labels and models without heads.
        dev: Experiences with the dev rows, on which checkpoints, masks and budgets are chosen,
            matched by task label, and by number where several have one label. None sets 5 % of an
            experience's training rows aside: while it trains, the strategy and its plugins see the
            experience without them.
        metadata: Name, metric and further JSON values of tasks to record, by task label.
        identity: Description of the base for the bank; None fingerprints the model.
        seeds_from_record: Whether random choices are a function of `identity` and the metric in
            `metadata`, too, as in runs. By default what is recorded changes no draw.
        keep: Function of a parameter's name that returns whether regions may contain the parameter.
        cache: Cache of dense runs and rankings; None computes all of them.
        checkpoints: Checkpoints from which interrupted dense runs and localizations resume.
        dense: Dense runs that were made elsewhere, from the base, by task label; the others, and
            those of a label that comes back, are made here.
        on_entry: Function called with the bank after every new entry.
        progress: Function called as (phase, step, steps) in dense runs and localization.

    Attributes:
        seconds: Wall time by task label and phase.
        passes: Rows that went through the model, by task label and phase.
    """

    def __init__(
        self,
        settings: GraftingSettings | None = None,
        *,
        by_label: Mapping[int, GraftingSettings] | None = None,
        bank: GraftBank | None = None,
        task_labels: TaskLabels = "stream",
        dev: Sequence[Any] | None = None,
        metadata: Mapping[int, TaskMetadata] | None = None,
        identity: BaseIdentity | None = None,
        seeds_from_record: bool = False,
        keep: Callable[[str], bool] | None = None,
        cache: Cache | None = None,
        checkpoints: Checkpoints | None = None,
        dense: Mapping[int, DenseRun] | None = None,
        on_entry: Callable[[GraftBank], None] | None = None,
        progress: PhaseProgress | None = None,
    ) -> None:
        super().__init__()
        check_arguments(
            settings=settings,
            by_label=by_label,
            bank=bank,
            identity=identity,
            task_labels=task_labels,
        )
        self.settings = settings or GraftingSettings()
        self._by_label = {
            label: replace(each, mode=self.settings.mode, seed=self.settings.seed)
            for label, each in (by_label or {}).items()
        }
        self._on_model = BankOnModel(bank, mode=self.settings.mode, identity=identity, keep=keep)
        self.seconds: dict[int, dict[str, float]] = {}
        self.passes: dict[int, dict[str, Passes]] = {}
        self._metadata = dict(metadata or {})
        metrics = {label: each.metric for label, each in self._metadata.items()}
        self._tasks = ExperienceTasks(dev, metrics, task_labels=task_labels)
        self._task_labels: TaskLabels = task_labels
        self._seeds_from_record = seeds_from_record
        self._keep = keep
        self._context = RunContext.of(cache, checkpoints, progress)
        self._dense = dict(dense or {})
        self._on_entry = on_entry
        self._training: TaskTraining | None = None
        self._trained: Any = None
        self._entries = ExperienceEntries()
        # While an experience is evaluated: the entry that was carried before, and its task's heads.
        self._evaluated: tuple[int | None, HeldHeads | None] | None = None
        self._first = FirstValues()
        self._warned = False

    # The hooks, in the order in which a strategy calls them.

    def before_training(self, strategy: Any = None, **kwargs: Any) -> None:
        """Abandon an experience whose training was ended by an exception."""
        check_instance(self, GraftingPlugin)
        self.abandon()
        check_optimizer(strategy)

    def before_train_dataset_adaptation(self, strategy: Strategy, **kwargs: Any) -> None:
        """Set dev rows aside, before the strategy makes its loader."""
        label = self._label(strategy)
        if label is not None:
            self._tasks.set_aside_(strategy, label=label, seed=self.settings.seed)

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Find the task's region, and give its free coordinates to the strategy's optimiser."""
        self.abandon()
        label = self._label(strategy)
        if label is None:
            return
        metadata = self._find_metadata(label)
        settings = self._by_label.get(label, self.settings)
        switch = self._prepare(strategy, label)
        task = self._make_task(strategy, label, switch.bank)
        context = PhaseReports(strategy, self._context, name=metadata.name, label=label).context
        names = [other.name for other in self._metadata.values()]
        with in_task(metadata.name):
            builds_on = find_earlier(switch.bank, settings, names=names)
            search = find_region(
                task,
                settings,
                owned=switch.bank.owned(of=builds_on),
                dense=None if label in self.seconds else self._dense.get(label),
                context=context,
            )
        self._training = TaskTraining(
            strategy,
            switch,
            label=label,
            task=task,
            settings=settings,
            search=search,
            builds_on=builds_on,
            measure=context.measure,
        )
        self._trained = strategy.experience

    def before_training_epoch(self, strategy: Strategy, **kwargs: Any) -> None:
        """Make the epoch's data order a function of (seed, task, epoch)."""
        if self._training is not None:
            self._restore()
            self._training.seed("epoch", strategy.clock.train_exp_epochs)

    def before_training_iteration(self, strategy: Strategy, **kwargs: Any) -> None:
        """Undo what an interrupted evaluation left, and seed the dropout of the step."""
        if self._training is not None:
            self._restore()
            self._training.seed("step", strategy.clock.train_exp_iterations)

    def before_forward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep running statistics (BatchNorm) frozen, and take over what another plugin wrote."""
        if self._training is not None:
            self._training.read_()
            freeze_statistics(strategy.model)

    def after_update(self, strategy: Strategy, **kwargs: Any) -> None:
        """Write the region's new values into the frozen weights, if the loss was finite."""
        if self._training is not None:
            with in_task(self._find_metadata(self._training.label).name):
                check_loss(strategy, phase="region training", from_base=True)
            self._training.write_()

    def after_training_iteration(self, strategy: Strategy, **kwargs: Any) -> None:
        """Evaluate on dev where the settings ask for it."""
        if self._training is not None:
            self._restore()
            with in_task(self._find_metadata(self._training.label).name):
                self._training.end_step(rows=len(strategy.mb_y))

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Turn the trained region into an entry of the bank."""
        training = self._training
        if training is None:
            return
        self._restore()
        self._training = None
        metadata = self._find_metadata(training.label)
        with in_task(metadata.name):
            bank = training.commit(metadata)
        self._first.end(unwrap_model(strategy.model), label=training.label)
        self._entries.add(strategy.experience, label=training.label, position=len(bank) - 1)
        self.seconds[training.label] = training.seconds
        self.passes[training.label] = training.passes
        if self._on_entry:
            self._on_entry(bank)

    def before_eval(self, strategy: Any = None, **kwargs: Any) -> None:
        """Undo what an interrupted evaluation left, before Avalanche grows heads for this one."""
        check_instance(self, GraftingPlugin)
        self._restore()

    def before_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Carry the answer of the experience's own entry.

        An experience that was not learned gets its label's latest entry; an unknown label gets the
        latest answer in prefix mode, and else the base's.
        """
        if self.bank is None:
            return
        model = unwrap_model(strategy.model)
        switch = self._on_model.open(model) if self._training is None else self._training.switch
        label = find_label(strategy.experience, self._task_labels)
        position = None if label is None else self.find_position(strategy.experience, label=label)
        if self._training is not None:
            if position is None or self._trains(strategy.experience, label):
                return
            self._training.suspend()
        if not hasattr(strategy, "answered_by"):  # a router picks entries by the text
            self._entries.check_label(label)
        heads = None if label is None else HeldHeads(model, label)
        self._evaluated = switch.position, heads
        bank = switch.bank
        if position is None:
            switch.to(len(bank) - 1 if bank.mode == "prefix" and bank.entries else None)
            return
        switch.to(position)
        classes = getattr(strategy.experience, "classes_in_this_experience", None) or ()
        units = max(map(int, classes), default=-1) + 1
        load_head_(model, bank.entries[position], classes=units)

    def after_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Restore the model."""
        self._restore()

    # For a loop that resumes in its middle (`Resuming`).

    def loop_state(self) -> State:
        """Return what the open training holds beside the values that the optimiser trains."""
        return self._training.state() if self._training is not None else ({}, {})

    def load_loop_state_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Go on where another training of the same task stood."""
        if self._training is not None:
            self._training.load_state_(tensors, values)

    # What a user may call.

    @property
    def bank(self) -> GraftBank | None:
        """The entries of the tasks so far; None before the first task."""
        return self._on_model.bank

    @property
    def learning(self) -> bool:
        """Whether an experience is training."""
        return self._training is not None

    def carry(self, model: nn.Module, position: int | None) -> None:
        """Make the model carry entry `position` of the bank, head included; None: the base.

        Raises:
            ValueError: If there is no bank yet, or while an experience is training.
            WrongArchitecture: If the bank belongs to a model with other parameters.
            WrongBase: If it belongs to other weights.
        """
        if self.bank is None or self._training is not None:
            raise ValueError("carry needs a learned task, and no experience in training")
        unwrapped = unwrap_model(model)
        self._on_model.open(unwrapped).to(position)
        if position is not None:
            load_head_(unwrapped, self.bank.entries[position])

    def find_position(self, experience: Any, *, label: int) -> int | None:
        """Return the position of the entry that answers an experience; None without an entry."""
        position = self._entries.find(experience, label=label)
        if position is None and self.bank is not None:
            return self.bank.find(label=label)
        return position

    def abandon(self) -> None:
        """Abandon an experience whose training was interrupted, as `train` does when called."""
        self._restore()
        if self._training is not None:
            self._training.abandon()
            self._training = None

    # Internals.

    def _restore(self) -> None:
        """Restore the model as it was before an evaluation, also after an interrupted one."""
        evaluated, self._evaluated = self._evaluated, None
        if evaluated is not None:
            before, heads = evaluated
            if heads is not None:
                heads.put_back_()
            if self._on_model.switch is not None and self._training is None:
                self._on_model.switch.to(before)
        if self._training is not None:
            self._training.restore()

    def _trains(self, experience: Any, label: int | None) -> bool:
        """Tell whether an experience, or the training one it belongs to, is in training."""
        if self._training is None or label is None or self._training.label != label:
            return False
        # An experience without an entry of its own counts as the one in training.
        position = self._entries.find(experience, label=label)
        return position is None or is_same_experience(experience, self._trained)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without callbacks and an open training, which belong to the process."""
        return self.__dict__ | {
            "_training": None,
            "_trained": None,
            "_evaluated": None,
            "_context": RunContext(),
            "_on_entry": None,
        }

    def _prepare(self, strategy: Strategy, label: int) -> Switch:
        """Check what is to be trained, and put the model and its heads to where the task begins."""
        check_model(strategy.model)
        check_plugins(strategy, GraftingPlugin)
        model = unwrap_model(strategy.model)
        last = _LAST_TRAINED.get(model)
        if last is not None and (other := last()) is not None:
            other.abandon()
        _LAST_TRAINED[model] = ref(self)
        switch = self._on_model.begin(model)
        switch.verify()
        if self._task_labels == "stream":
            learned = frozenset(entry.label for entry in switch.bank.entries)
            check_rows(strategy, label=label, learned=learned)
        self._first.begin_(model, switch.bank, label=label)
        return switch

    def _make_task(self, strategy: Strategy, label: int, bank: GraftBank) -> LearnableTask:
        task = self._tasks.make(
            strategy,
            strategy.experience,
            label=label,
            base=bank.base.fingerprint,
            seeded_by=None if self._seeds_from_record else _name_weights(bank),
            seed=self.settings.seed,
            keep=self._keep,
        )
        return replace(task, parameters={name: task.parameters[name] for name in bank.layout.names})

    def _find_metadata(self, label: int) -> TaskMetadata:
        return self._metadata.get(label) or TaskMetadata(f"task{label}")

    def _label(self, strategy: Strategy) -> int | None:
        """Return the label of the task to learn; None without labels or if nothing trains."""
        label = find_label(strategy.experience, self._task_labels)
        if not has_labels(strategy, self._task_labels):
            if not self._warned:
                self._warned = True
                warn_of_no_labels()
            return None
        settings = self._by_label.get(label, self.settings) if label is not None else self.settings
        return label if strategy.train_epochs or not settings.retrain else None


def _name_weights(bank: GraftBank) -> str:
    """Return the fingerprint of a bank's base without what else is recorded of it."""
    weights = bank.base.weights_sha256
    return fingerprint_weights(weights) if weights else bank.base.fingerprint


def find_earlier(
    bank: GraftBank, settings: GraftingSettings, *, names: Iterable[str] = ()
) -> tuple[int, ...]:
    """Return the positions of the entries that a task builds on; tasks in `names` have none yet."""
    wanted = settings.builds_on
    if wanted is not None:
        known = {entry.task for entry in bank.entries} | set(names)
        for name in wanted:
            if name not in known:
                raise InputError(f"builds_on: no task {name!r} here; {nearest(name, known)}")
    if bank.mode == "isolated":
        return ()
    if wanted is None:
        return tuple(range(len(bank)))
    below: set[int] = set()
    for position, entry in enumerate(bank.entries):
        if entry.task in wanted:
            below |= {*bank.builds_on(position), position}
    return tuple(sorted(below))

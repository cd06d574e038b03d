"""Learnable tasks from experiences, made here for all strategies, so they share cached runs."""

from __future__ import annotations

import copy
import functools
import gc
import hashlib
import inspect
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary, ref

import torch
from avalanche.benchmarks import CLScenario
from avalanche.models import MultiTaskModule
from torch import Tensor, nn
from torch.utils.data import default_collate

from cl_graft.errors import InputError
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.metrics import score
from cl_graft.metrics.task_score import Scorer
from cl_graft.models import TaskModel
from cl_graft.models.heads import TokenHead
from cl_graft.runtime.seeding import derive, save_generators
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.task_heads import (
    Head,
    find_graftable,
    find_head_paths,
    find_heads,
    has_task_heads,
    unwrap_model,
)
from cl_graft.training.examples import Examples, compute_logits
from cl_graft.training.learnable_task import LearnableTask

if TYPE_CHECKING:
    from cl_graft.strategies.benchmark import MultiTaskText, TextStream

_DEV_SHARE = 0.05
_READING = ("mb_x", "mb_y", "mb_task_id", "_unpack_minibatch", "forward", "criterion")
_KNOWN_PACKAGES = ("avalanche.", "cl_graft.")
_DEEPEST = 6
_PLAIN = (bool, int, float, str, type(None))
_LIBRARIES = ("torch", "transformers", "avalanche", "peft", "cl_graft")
_ORIGINS = {"_name_or_path", "architectures", "transformers_version"}
"""Fields of a model's config that say where it came from, not how it computes."""


class ExperienceTasks:
    """The learnable tasks of experiences, with the dev rows and metrics that a plugin was given."""

    def __init__(
        self,
        dev: Any = None,
        metrics: Mapping[int, str] | None = None,
        *,
        task_labels: TaskLabels = "stream",
    ) -> None:
        self._dev = _dev_by_label(dev, task_labels)
        self._metrics = dict(metrics or {})
        self._served: dict[int, tuple[ref[Any], int]] = {}

    def set_aside_(self, strategy: Strategy, *, label: int, seed: int) -> None:
        """Take dev rows out of the experience in training if it has none, before loaders come."""
        experience = strategy.experience
        dev = self._find_dev(experience, label)
        if dev is None:
            strategy.experience = set_aside(experience, seed=seed)
            return
        number, benchmark = int(experience.current_experience), find_benchmark(experience)
        of, served = self._served.setdefault(id(dev), (ref(benchmark), number))
        if (of(), served) != (benchmark, number):
            warnings.warn(
                f"experience {number} with task label {label} is chosen on dev rows that another "
                "experience with this label was chosen on, too: dev experiences are matched by "
                "label. Give each experience a label of its own, or make the dev stream in the "
                "benchmark of the training stream",
                stacklevel=3,
            )

    def dev_rows(self, strategy: Strategy, label: int) -> Examples:
        """Return a task's dev rows, or those set aside from the experience in training."""
        return _dev_rows(self._choose_dev(strategy, label), _StrategyBatches(strategy))

    def dev_score(self, strategy: Strategy, label: int) -> float:
        """Score a strategy's model as it is now on the dev rows of a task."""
        dev, batches = self._choose_dev(strategy, label), _StrategyBatches(strategy)
        logits, targets = compute_logits(
            batches.forward(label), _dev_rows(dev, batches), device=strategy.device
        )
        # The scorer knows the texts of the dev rows, which may be of another task than is trained.
        scorer = getattr(dev, "scorer", None)
        return score(logits, targets, scorer or self._metrics.get(label, "accuracy"))

    def make(
        self,
        strategy: Strategy,
        experience: Any,
        *,
        label: int,
        base: str,
        seed: int,
        seeded_by: str | None = None,
        keep: Callable[[str], bool] | None = None,
    ) -> LearnableTask:
        """Make the learnable task of an experience on a strategy's model."""
        batches = _StrategyBatches(strategy)
        with _explained(strategy):
            _read_rows(experience.dataset.train(), experience, batches).batch([0])
        task = make_learnable_task(
            strategy.model,
            experience,
            label=label,
            criterion=batches.criterion,
            base=base,
            device=strategy.device,
            dev=self._find_dev(experience, label),
            metric=self._metrics.get(label, "accuracy"),
            keep=keep,
            seed=seed,
            seeded_by=seeded_by,
            batches=batches,
        )
        if not hasattr(experience, "encoded"):
            with _explained(strategy):
                _try_batch(task)
        return task

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without references to what lives in this process."""
        return self.__dict__ | {"_served": {}}

    def _choose_dev(self, strategy: Strategy, label: int) -> Any:
        """Return a task's dev experience, or what was set aside from the experience in training."""
        dev = self._find_dev(strategy.experience, label)
        return strategy.experience.set_aside if dev is None else dev

    def _find_dev(self, experience: Any, label: int) -> Any:
        """Return the dev experience of a training experience; None if there is none."""
        known = self._dev.get(label, ())
        same = [each for each in known if is_same_experience(each, experience)]
        number = experience.current_experience
        numbered = [each for each in known if each.current_experience == number]
        return next((each for each in (*same, *numbered, *known)), None)


def make_learnable_task(
    model: nn.Module,
    experience: Any,
    *,
    label: int,
    criterion: Callable[[Tensor, Tensor], Tensor],
    base: str,
    device: torch.device,
    dev: Any = None,
    metric: str = "accuracy",
    keep: Callable[[str], bool] | None = None,
    seed: int = 0,
    seeded_by: str | None = None,
    batches: _StrategyBatches | None = None,
) -> LearnableTask:
    """Make the learnable task of an experience on a model at its base."""
    if dev is None:
        experience = set_aside(experience, seed=seed)
        dev = experience.set_aside
    scorer = getattr(dev, "scorer", None)
    unwrapped = unwrap_model(model)
    heads = find_heads(unwrapped, label)
    named = {
        f"{head.path}.{name}" if head.path else name: parameter
        for head in heads
        for name, parameter in head.module.named_parameters()
    }
    train = _read_rows(experience.dataset.train(), experience, batches)
    chosen_on = _dev_rows(dev, batches)
    overridden = batches.overridden if batches is not None else {}
    by_loss = scorer is None and metric == "accuracy" and not _are_classes(chosen_on)
    parameters = find_graftable(unwrapped, keep=keep)
    fitted = heads[0].module if len(heads) == 1 and not overridden else None

    def own_score(logits: Tensor, targets: Tensor) -> float:
        if by_loss:
            return -float(criterion(logits.to(device), targets.to(device)))
        return score(logits, targets, scorer or metric)

    return LearnableTask(
        precision=getattr(unwrapped, "precision", "fp32"),
        recomputes=getattr(unwrapped, "recomputes", False),
        model=unwrapped,
        parameters=parameters,
        head=named,
        forward=_make_forward(model, label) if batches is None else batches.forward(label),
        criterion=criterion,
        score=own_score,
        scored_by_loss=by_loss,
        train=train,
        dev=chosen_on,
        device=device,
        content="|".join(
            [
                seeded_by or base,
                train.fingerprint(),
                chosen_on.fingerprint(),
                "accuracy" if seeded_by else metric,
                # Under names that do not depend on the task label.
                hash_tensors({str(number): p for number, p in enumerate(named.values())}),
            ]
        ),
        reading=hash_reading(
            unwrapped,
            heads,
            parameters=parameters,
            criterion=[criterion, overridden] if overridden else criterion,
            scorer=scorer or metric,
            dev=chosen_on,
        ),
        head_module=fitted,
        head_takes_tokens=isinstance(fitted, TokenHead),
    )


def make_stream_task(
    model: MultiTaskText, stream: TextStream, label: int, *, base: str, seed: int
) -> LearnableTask:
    """Make the learnable task of one task of a stream, with the cache keys that strategies use."""
    position = label - stream.first_label
    experience = stream.benchmark.train_stream[position]
    model.adaptation(experience)
    return make_learnable_task(
        model,
        experience,
        label=label,
        criterion=stream.criterion,
        base=base,
        device=model.task_model.device,
        dev=stream.benchmark.valid_stream[position],
        metric=stream.tasks[position].task.scored_by,
        seed=seed,
    )


def set_aside(experience: Any, *, seed: int) -> Any:
    """Return an experience without 5 % of its rows; the attribute `set_aside` has those."""
    if hasattr(experience, "set_aside"):
        return experience
    rows = Examples(experience.dataset)
    if len(rows) < 2:
        raise InputError(
            f"an experience of {len(rows)} rows has none to set aside for choosing on dev; pass "
            "`dev`, or give it 2 rows at least"
        )
    rest, part = rows.split(_DEV_SHARE, seed=derive(seed, "dev"))
    trained = _with_rows(experience, rest.rows)
    trained.set_aside = _with_rows(experience, part.rows)
    return trained


class _StrategyBatch:
    """A batch that only its strategy can read, which also moves it to the device."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def to(self, device: torch.device) -> _StrategyBatch:
        """Return the batch as it is."""
        del device
        return self


class _StrategyBatches:
    """The batches of a strategy; `overridden` holds what its class does in a way of its own."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._last: Any = None
        self.overridden = {
            name: getattr(vars(kind)[name], "fget", vars(kind)[name])
            for name in _READING
            for kind in [next(kind for kind in type(strategy).__mro__ if name in vars(kind))]
            if not kind.__module__.startswith(_KNOWN_PACKAGES)
        }

    def read(self, items: Sequence[Any]) -> tuple[Any, Tensor]:
        """Return the inputs and the targets of some rows, the targets on the CPU."""
        batch = self._collate(items)
        if not self.overridden:
            return batch[0], batch[1]
        with self._holding(batch):
            return _StrategyBatch(batch), self._strategy.mb_y.cpu()

    def forward(self, label: int) -> Callable[[Any], Tensor]:
        """Return the function of inputs that returns the outputs of a task."""
        if not self.overridden:
            return _make_forward(self._strategy.model, label)
        return self._answer

    @property
    def criterion(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The mean loss of outputs and targets, or a loss of its own of what `forward` answered."""
        return self._loss if "criterion" in self.overridden else self._strategy._criterion

    def _answer(self, inputs: _StrategyBatch) -> Tensor:
        self._last = inputs.held
        with self._holding(inputs.held):
            return self._strategy.forward()

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        del targets
        with self._holding(self._last):
            self._strategy.mb_output = outputs
            return self._strategy.criterion()

    def _collate(self, items: Sequence[Any]) -> Any:
        loader = self._strategy.dataloader
        settings = getattr(loader, "loader_kwargs", {})
        collate = settings.get("collate_fn") or getattr(loader, "collate_fn", None)
        return (collate or default_collate)(list(items))

    @contextmanager
    def _holding(self, batch: Any) -> Iterator[None]:
        """Give the strategy another batch for a `with` block."""
        strategy = self._strategy
        before = strategy.mbatch, strategy.mb_output
        try:
            strategy.mbatch = batch
            strategy._unpack_minibatch()
            yield
        finally:
            strategy.mbatch, strategy.mb_output = before


def _dev_by_label(dev: Any, task_labels: TaskLabels) -> dict[int | None, list[Any]]:
    """Return experiences by their task label, the latest first."""
    by_label: dict[int | None, list[Any]] = {}
    several = isinstance(dev, Iterable)
    for each in dev if several else () if dev is None else (dev,):
        if not (several and hasattr(each, "dataset") and hasattr(each, "current_experience")):
            raise TypeError(
                "dev must hold experiences, such as benchmark.valid_stream, got a "
                f"{type(dev).__name__}{f' of {type(each).__name__}' if several else ''}"
            )
        by_label.setdefault(find_label(each, task_labels), []).insert(0, each)
    return by_label


def _with_rows(experience: Any, rows: Sequence[int]) -> Any:
    """Copy an experience with some of its rows, as Avalanche copies experiences."""
    part = copy.copy(experience)
    part._dataset = experience.dataset.subset(rows)
    encoded = getattr(experience, "encoded", None)
    if encoded is not None:
        part.encoded = tuple(tensor[torch.tensor(rows)] for tensor in encoded)
    return part


def _dev_rows(dev: Any, batches: _StrategyBatches | None) -> Examples:
    return _read_rows(dev.dataset.eval(), dev, batches)


def _make_forward(model: nn.Module, label: int) -> Callable[[Any], Tensor]:
    if has_task_heads(model):
        return lambda inputs: model(inputs, label)
    return model


def _read_rows(data: Any, experience: Any, batches: _StrategyBatches | None) -> Examples:
    if batches is None or not batches.overridden:
        encoded = getattr(experience, "encoded", None)
        return Examples(data, tensors=encoded, read=batches.read if batches else None)
    return Examples(data, read=batches.read)


def _are_classes(rows: Examples) -> bool:
    targets = rows.batch([0])[1]
    return targets.ndim == 1 and not targets.is_floating_point()


def _try_batch(task: LearnableTask) -> None:
    """Answer and score two rows, so that what cannot be learned fails before the dense run."""
    put_back = save_generators()
    try:
        with preserve_modes(task.model), torch.no_grad():
            task.model.eval()
            inputs, targets = task.train.batch(range(min(2, len(task.train))))
            logits = task.forward(inputs.to(task.device))
            loss = task.criterion(logits, targets.to(task.device))
            if loss.numel() != 1:
                raise ValueError(f"the loss has the shape {tuple(loss.shape)}, not one number")
            task.score(logits.float().cpu(), targets)
    finally:
        put_back()


@contextmanager
def _explained(strategy: Strategy) -> Iterator[None]:
    """Say what batches can be learned, where a strategy's cannot."""
    try:
        yield
    except Exception as error:
        raise InputError(
            f"grafting cannot learn from the batches of {type(strategy).__name__}: "
            f"{type(error).__name__}: {error}. A batch is collated by the strategy's loader; where "
            "the class does not override mb_x, mb_y, _unpack_minibatch, forward or criterion, its "
            "first two parts are inputs and targets"
        ) from error


def hash_reading(
    model: nn.Module,
    heads: Sequence[Head],
    *,
    parameters: Mapping[str, nn.Parameter],
    criterion: Any,
    scorer: str | Scorer,
    dev: Examples,
) -> str:
    """Hash what the outcome of training depends on beside weights, data and settings."""
    config: Any = getattr(getattr(model, "backbone", model), "config", None)
    settings = config.to_dict() if hasattr(config, "to_dict") else {}
    words = {
        f"{number}.{name}": t for number, h in enumerate(heads) for name, t in h.buffers().items()
    }
    chosen_by = scorer
    if not isinstance(scorer, str):
        chosen_by = [scorer.name, scorer.references(dev.batch(range(len(dev)))[1])]
    text = json.dumps(
        [
            {name: value for name, value in settings.items() if name not in _ORIGINS},
            hash_tensors(words),
            _describe_modules(model, without=find_head_paths(model)),
            [_describe_modules(head.module) for head in heads],
            [[name, list(tensor.shape)] for name, tensor in parameters.items()],
            getattr(model, "precision", "fp32"),
            describe(criterion),
            chosen_by,
        ],
        sort_keys=True,
        default=str,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def describe(value: Any, *, depth: int = 0) -> Any:
    """Describe a loss or a part of one, as JSON that is the same if it computes the same."""
    if isinstance(value, _PLAIN):
        return value
    if inspect.isclass(value) or depth > _DEEPEST:
        return _tell_code(value if inspect.isclass(value) else type(value))
    inner = functools.partial(describe, depth=depth + 1)
    if isinstance(value, Tensor):
        return hash_tensors({"tensor": value})
    if isinstance(value, nn.Module):
        tensors = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        return [_describe_modules(value), hash_tensors(tensors)]
    if isinstance(value, functools.partial):
        return [inner(value.func), inner(value.args), inner(value.keywords)]
    if inspect.ismethod(value):
        return [inner(value.__func__), inner(value.__self__)]
    if inspect.isfunction(value):
        enclosed = [cell.cell_contents for cell in value.__closure__ or ()]
        return [_tell_code(value), inner(value.__defaults__), inner(enclosed)]
    if isinstance(value, Mapping):
        return sorted(([str(key), inner(held)] for key, held in value.items()), key=str)
    if isinstance(value, Set):
        return sorted(map(inner, value), key=str)
    if isinstance(value, list | tuple):
        return [inner(held) for held in value]
    if inspect.isroutine(value):
        return _tell_code(value)
    return [_tell_code(type(value)), inner(getattr(value, "__dict__", {}))]


def _describe_modules(model: nn.Module, *, without: Sequence[str] = ()) -> list[Any]:
    """Return path, class and settings of every module, but for those below some paths."""
    below = tuple(f"{path}." if path else "" for path in without)
    return [
        [path, _tell_code(type(module)), module.extra_repr(), _list_settings(module)]
        for path, module in model.named_modules()
        if path not in without and not (below and path.startswith(below))
    ]


def _list_settings(module: nn.Module) -> list[tuple[str, Any]]:
    # Avalanche's modules count tasks and classes, which says nothing of what they compute.
    held = {} if isinstance(module, MultiTaskModule) else vars(module)
    aside = {"name_or_path", "training", *(["name"] if isinstance(module, TaskModel) else [])}
    return sorted(
        (name, value)
        for name, value in held.items()
        if isinstance(value, _PLAIN) and not name.startswith("_") and name not in aside
    )


@functools.lru_cache(maxsize=64)
def _tell_code(thing: Any) -> str:
    """Return the name of a class or a function, with its source text if no library made it."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    if str(thing.__module__).partition(".")[0] in _LIBRARIES:
        return name
    try:
        return f"{name}\n{inspect.getsource(thing)}"
    except (OSError, TypeError):  # typed into an interpreter, or of an extension module
        return name


TaskLabels = Literal["stream", "experience"]
"""Source of task labels: the stream's own, or the index of the experience."""

_Known = dict[tuple[int, int], int]
"""Positions of entries in the bank, by number in the stream and task label of the experience."""

_HOW = (
    "Make the benchmark with labels: SplitMNIST(..., return_task_id=True), nc_benchmark(..., "
    "task_labels=True), or of any other one benchmark = task_incremental_benchmark(benchmark, "
    'reset_task_labels=True). Or let the index of an experience be its label: task_labels="'
    'experience" in GraftingPlugin or GraftingContinual'
)


def find_label(experience: Any, task_labels: TaskLabels = "stream") -> int | None:
    """Return the label of an experience's task; None where a stream has none."""
    if task_labels == "experience":
        return int(experience.logging().current_experience)
    labels = {int(label) for label in getattr(experience, "task_labels", ())}
    if len(labels) > 1:
        raise ValueError(
            f"an experience holds tasks {sorted(labels)}; grafting learns one task at a time"
        )
    return labels.pop() if labels else None


def has_labels(strategy: Strategy, task_labels: TaskLabels) -> bool:
    """Tell whether labels tell experiences apart; older benchmarks say 0 where they have none."""
    label = find_label(strategy.experience)
    if task_labels == "experience":
        index = find_label(strategy.experience, task_labels)
        if has_task_heads(strategy.model) and label != index:
            raise ValueError(
                f"the model answers by the stream's task labels, and experience {index} has "
                f"{'none' if label is None else f'the label {label}'}: task_labels='experience' is "
                "for models without task heads; make the benchmark with labels for this one"
            )
        return True
    if label is None or has_task_heads(strategy.model):
        return label is not None
    stream = strategy.experience.origin_stream
    if stream is None or len(stream) < 2:
        return True
    return len({int(label) for experience in stream for label in experience.task_labels}) > 1


def warn_of_no_labels() -> None:
    """Warn that nothing is protected in a stream without task labels."""
    warnings.warn(
        "the stream has no task labels: grafting needs them to keep tasks apart, so this "
        f"trains like Naive and nothing is protected from forgetting. {_HOW}",
        stacklevel=3,
    )


class ExperienceEntries:
    """Positions of entries by the benchmark, number and task label of their experience.

    A benchmark that was not trained on in this process, such as a copy, is taken for the latest
    that was, with a warning if there were several.
    """

    def __init__(self) -> None:
        self._by_benchmark: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()
        self._latest = _Latest()
        self._restored = _Latest()
        self._experiences: Counter[int] = Counter()
        self._warned = False

    def add(self, experience: Any, *, label: int, position: int) -> None:
        """Remember that an experience was learned into the entry at a position."""
        key = int(experience.current_experience), label
        known = self._by_benchmark.setdefault(find_benchmark(experience), {})
        self._latest.add(key, position, again=key in known)
        self._experiences[label] += key not in known
        known[key] = position

    def find(self, experience: Any, *, label: int) -> int | None:
        """Return the position of the entry; None if the experience was not learned."""
        key = int(experience.current_experience), label
        known = self._by_benchmark.get(find_benchmark(experience))
        if known is not None and key in known:
            return known[key]
        # What this process trained on it knows, so another benchmark is one of the process before.
        places = self._restored if known is not None or key in self._restored else self._latest
        if key in places.several:
            warnings.warn(
                f"experience {key[0]} with task label {label} was learned in several benchmarks, "
                f"and the {experience.origin_stream.name} stream is of none that this process "
                "trained on, so the newest of their entries answers it. Evaluate the streams of "
                "the benchmark that was trained on, or give each experience a label of its own",
                stacklevel=4,
            )
        return places.get(key)

    def check_label(self, label: int | None) -> None:
        """Warn once, if experiences of an evaluated label are told apart, which it does not do."""
        count = 0 if label is None else self._experiences[label]
        if count > 1 and not self._warned:
            self._warned = True
            warnings.warn(
                f"{count} experiences were learned with task label {label}, and a test experience "
                "is answered by its own entry: these answers know the experience of every row, "
                "which the label does not tell. Class-incremental scores must not know it; a "
                "router finds it from the text. Where it is known, give each experience a label "
                "of its own",
                stacklevel=4,
            )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_by_benchmark": None, "_restored": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= copy.deepcopy(state)
        self._by_benchmark = WeakKeyDictionary()
        self._restored = copy.deepcopy(self._latest)


class _Latest(dict[tuple[int, int], int]):
    """Positions of the latest entries by number and label of the experience, in any benchmark."""

    def __init__(self, *known: Any) -> None:
        super().__init__(*known)
        self.several: set[tuple[int, int]] = set()

    def add(self, key: tuple[int, int], position: int, *, again: bool) -> None:
        """Remember a position; `again` tells that its benchmark has it already."""
        if key in self and not again:
            self.several.add(key)
        self[key] = position


class _Unnamed:
    """A benchmark that its streams do not name."""


_UNNAMED: WeakKeyDictionary[Any, _Unnamed] = WeakKeyDictionary()
"""Benchmarks by stream, where streams do not name theirs."""


def find_benchmark(experience: Any) -> object:
    """Return an object that stands for the benchmark of an experience, one for all its streams.

    Where a stream does not name its benchmark, as those of `benchmark_from_datasets`, it is looked
    for among the living objects, once; a stream without one counts as a benchmark of its own.
    """
    stream = experience.origin_stream
    named = getattr(stream, "benchmark", None)
    if named is not None:
        return named
    if stream not in _UNNAMED:
        # `type`, as `isinstance` runs code of objects that stand for others.
        made = (each for each in gc.get_objects() if issubclass(type(each), CLScenario))
        streams = next(
            (all_ for all_ in (each.streams.values() for each in made) if stream in all_), (stream,)
        )
        benchmark = _Unnamed()
        for each in streams:
            _UNNAMED[each] = benchmark
    return _UNNAMED[stream]


def is_same_experience(first: Any, second: Any) -> bool:
    """Tell whether two experiences have one number in one benchmark, as test and training rows."""
    return int(first.current_experience) == int(second.current_experience) and (
        find_benchmark(first) is find_benchmark(second)
    )

"""Experiments on a model that learned several tasks at once: whose skill lies where.

Panigrahi et al., 2023, Sec. 5.1, Figs. 8 and 11 to 14 (https://arxiv.org/abs/2302.06600): batches
come from a random task, regions of single tasks are found in the multi-task model, and grafts of
one task, or of a group, are asked all tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from torch import Tensor

from cl_graft.errors import InputError
from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import preserve_parameters, replace_parameters, train_only
from cl_graft.grafts.region import Region, union
from cl_graft.grafts.selection import top_k
from cl_graft.localization.gates import open_gates
from cl_graft.localization.learned_mask import learned_mask
from cl_graft.localization.paper_mask import paper_mask
from cl_graft.runtime.seeding import derive, generator
from cl_graft.settings.schedule_of_task import train_candidates
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.fine_tuning import backpropagate, fine_tune
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.learnable_task import Passes
from cl_graft.training.precision import loss_scale
from cl_graft.training.region_parameters import RegionParameters
from papers.bench import Bench, Outcome
from papers.measurements import Measurement
from papers.paper_metrics import relative_gain

GROUPS: Sequence[tuple[str, ...]] = (
    ("sst2_sent", "cr"),
    ("snli", "mnli"),
    ("qqp", "mrpc"),
    ("ag_news", "qnli"),
    ("sst2_sent", "snli", "qqp", "ag_news"),
)
"""Groups of Fig. 8 c and d: one a class of tasks, and one across them (the paper's own groups are
named in its picture alone)."""

_JOINT_STEPS = 10


def regions_and_unions(bench: Bench) -> Iterator[Measurement]:
    """Overlap and gains of regions, γ_base empty, and gains of unions, purified or not (Fig. 8)."""
    learned = _Learned.of(bench)
    yield from learned.read()
    yield from learned.unions()


_FROM_A_BASE = ("learned_mask", "paper_mask")


def task_regions(bench: Bench) -> Iterator[Measurement]:
    """Overlap and gains of regions, γ_base empty (Figs. 13 and 14, by other optimisers)."""
    yield from _Learned.of(bench).read()


def from_a_small_base(bench: Bench) -> Iterator[Measurement]:
    """The same with γ_base of the most moved coordinates, a tenth of the region's size (Fig. 11).

    That is the paper's 0.001 % for regions of 0.01 %.
    """
    yield from _Learned.of(bench, base_share=0.1).read()


def from_a_large_base(bench: Bench) -> Iterator[Measurement]:
    """The same with γ_base as large as the region, the paper's 0.01 % (Fig. 12)."""
    yield from _Learned.of(bench, base_share=1.0).read()


@dataclass(frozen=True, eq=False)
class _Learned:
    """A multi-task model, the regions of its tasks, and what the base and the whole model score."""

    bench: Bench
    schedule: FineTuning
    run: DenseRun
    heads: Sequence[dict[str, Tensor]]
    regions: Sequence[Region]
    base: Sequence[float]
    full: Sequence[float]

    @classmethod
    def of(cls, bench: Bench, *, base_share: float = 0.0) -> _Learned:
        if base_share and str(bench.config.grafting.localizer) not in _FROM_A_BASE:
            raise InputError(
                f"{bench.config.grafting.localizer} does not start from a γ_base: choose one of "
                f"{', '.join(_FROM_A_BASE)}"
            )
        schedule, run, heads = _learn_all(bench)
        regions = [
            _region(bench, label, replace(run, head=head), base_share)
            for label, head in enumerate(heads)
        ]
        base, full = _scores(bench, heads), _scores(bench, heads, run=run)
        return cls(bench, schedule, run, heads, regions, base, full)

    def read(self) -> Iterator[Measurement]:
        """Read base and whole model, and every region's overlaps and gains."""
        names = self.bench.names
        for method, scores in (("base", self.base), ("whole model", self.full)):
            for name, score in zip(names, scores, strict=True):
                yield Measurement(name, method, "score", score)
        for name, region in zip(names, self.regions, strict=True):
            yield from self._gains(self.run, region, f"region of {name}")
            for other, beside in zip(names, self.regions, strict=True):
                share = region.overlap(beside)
                if share is not None:
                    yield Measurement(other, f"region of {name}", "overlap", share)

    def unions(self) -> Iterator[Measurement]:
        """Read the gains of unions of groups, as they are and purified."""
        names = self.bench.names
        for members in _groups(names):
            group = union([self.regions[label] for label in members], layout=self.bench.layout)
            called = " ∪ ".join(names[label] for label in members)
            yield from self._gains(self.run, group, called)
            purified = _purify(self.bench, self.schedule, self.run, group, members, self.heads)
            yield from self._gains(purified, group, f"{called}, purified")

    def _gains(self, run: DenseRun, region: Region, method: str) -> Iterator[Measurement]:
        """Ask every task of a graft, and say what part of the full model's gain it has (Eq. 5)."""
        with grafted(self.bench.task(0).model, gather(run.tuned, region)):
            scores = _scores(self.bench, self.heads)
        for name, score, low, high in zip(
            self.bench.names, scores, self.base, self.full, strict=True
        ):
            gain = relative_gain(score, base=low, full=high)
            yield Measurement(name, method, "score", score)
            if gain is not None:
                yield Measurement(name, method, "relative gain", gain)


def _region(bench: Bench, label: int, run: DenseRun, base_share: float) -> Region:
    """Find a task's region in the multi-task model, from a base of the most moved coordinates."""
    if not base_share and str(bench.config.grafting.localizer) != "paper_mask":
        return bench.region(label, run)
    return grow_region(bench, label, run, base=base_share * bench.density)


def grow_region(bench: Bench, label: int, dense: DenseRun, *, base: float) -> Region:
    """Return the region of a mask that grows from γ_base (Eq. 4), of the config's density."""
    task, localizer = bench.task(label), str(bench.config.grafting.localizer)
    k, steps = bench.size(bench.density), bench.config.grafting.mask_steps

    def train_published() -> Outcome:
        with bench.open_inputs(label, localizer, dense, task) as inputs:
            gates = paper_mask(inputs, k=k, steps=steps, base_density=base)
        return {"index": top_k(gates, k).index}, {}

    def sound() -> Outcome:
        with bench.open_inputs(label, localizer, dense, task) as inputs:
            gains = learned_mask(inputs, k=k, steps=steps, started=started)
        return {"index": open_gates(gains, started, k=k).index}, {}

    if localizer == "paper_mask":
        found, own = train_published, {"published": repr(base)}
    else:
        count = bench.size(base)
        started = bench.ranking(label, "movement", k=count, dense=dense, depth=count).top(count)
        found, own = sound, {"started": hash_tensors({"": started.index})}
    recipe = bench.describe_choice(label, dense, k=k, steps=steps, **own)
    kept, _ = bench.get_or_make("grown", task.identity, recipe, found)
    return Region.of(bench.layout, kept["index"])


def _groups(names: Sequence[str]) -> list[list[int]]:
    """Return the groups whose tasks are all there; the first two tasks where there is none."""
    known = [[names.index(n) for n in group] for group in GROUPS if set(group) <= set(names)]
    return known or ([[0, 1]] if len(names) > 2 else [])


def _learn_all(bench: Bench) -> tuple[FineTuning, DenseRun, list[dict[str, Tensor]]]:
    """Train the base and all heads on batches of random tasks, as many steps as all alone take.

    Where there are several schedules, the one with the best mean score on dev is taken (App. C.1).
    """
    schedules = bench.schedules(0)
    if len(schedules) == 1:
        return schedules[0], *_joint(bench, schedules[0])

    def dev(found: tuple[FineTuning, tuple[DenseRun, list[dict[str, Tensor]]]]) -> float:
        _, (run, heads) = found
        return math.fsum(_scores(bench, heads, run=run, split="valid"))

    schedule, (run, heads) = max(train_candidates(schedules, partial(_joint, bench)), key=dev)
    return schedule, run, heads


def _joint(bench: Bench, schedule: FineTuning) -> tuple[DenseRun, list[dict[str, Tensor]]]:
    """Train all tasks together by a schedule of one."""
    labels = range(len(bench.names))
    tasks = [bench.task(label) for label in labels]
    steps = sum(bench.schedules(label)[0].steps for label in labels)
    schedule = replace(schedule, evaluations=0, steps=steps)
    shared, first = tasks[0].parameters, tasks[0]
    heads = {name: p for task in tasks for name, p in task.head.items()}
    parameter_names = {name: name for name in shared} | {
        name: f"{place}.{kept}"
        for place, task in enumerate(tasks)
        for name, kept in task.cached_head_names.items()
    }
    together = {**shared, **heads}

    def learn() -> Outcome:
        with preserve_parameters(together) as before:
            fine_tune(
                first.model,
                together,
                loss=_mix_tasks(bench, schedule),
                settings=schedule,
                seed=bench.seed,
                anchor={name: before[name] for name in shared},
                scale=loss_scale(first.precision),
            )
            return {parameter_names[name]: value for name, value in snapshot(together).items()}, {}

    identity = "|".join(task.identity for task in tasks)
    kept, _ = bench.get_or_make("joint", identity, asdict(schedule), learn)
    found = {name: kept[parameter_names[name]].to(bench.device) for name in together}
    run = DenseRun({name: found[name] for name in shared}, {}, None, Passes())
    return run, [{name: found[name] for name in task.head} for task in tasks]


def _mix_tasks(bench: Bench, schedule: FineTuning) -> Callable[[int], Tensor | Iterable[Tensor]]:
    """Return the loss of a step: of a batch of a random task."""
    seed = derive(bench.seed, "multi-task")
    losses = _losses(bench, range(len(bench.names)), schedule, seed)

    def loss(step: int) -> Tensor | Iterable[Tensor]:
        drawn = generator(seed, "which", step)
        return losses[int(torch.randint(len(losses), (1,), generator=drawn))](step)

    return loss


def _losses(
    bench: Bench, labels: Iterable[int], schedule: FineTuning, seed: int
) -> list[Callable[[int], Tensor | Iterable[Tensor]]]:
    """Return the loss of a step of each task."""
    return [bench.task(label).training_loss(schedule, seed=derive(seed, label)) for label in labels]


def _purify(
    bench: Bench,
    schedule: FineTuning,
    run: DenseRun,
    region: Region,
    labels: Sequence[int],
    heads: Sequence[dict[str, Tensor]],
) -> DenseRun:
    """Take a few joint steps on a group's union from its grafted values (Fig. 8d).

    A step of the joint run's optimiser, at its first rate, descends the sum of the tasks' losses,
    each on a localizer's batch: ten steps on a training batch's few rows would add noise.
    """
    model = bench.task(0).model
    rows = max(schedule.batch_size, bench.config.grafting.mask_batch)
    batches = replace(
        schedule, batch_size=rows, micro_batch=bench.config.fine_tuning.micro_batch or 32
    )
    losses = _losses(bench, labels, batches, derive(bench.seed, "purify"))
    with ExitStack() as stack:
        stack.enter_context(train_only(model))
        stack.enter_context(grafted(model, gather(run.tuned, region)))
        for label in labels:
            stack.enter_context(replace_parameters(bench.task(label).head, heads[label]))
        live = stack.enter_context(RegionParameters(model, region))
        kind = torch.optim.AdamW if schedule.optimizer == "adamw" else torch.optim.SGD
        optimizer = kind([live.vector], lr=schedule.lr, weight_decay=0.0)
        for step in range(_JOINT_STEPS):
            optimizer.zero_grad()
            for loss in losses:
                backpropagate(loss(step))
            if schedule.clip:
                torch.nn.utils.clip_grad_norm_([live.vector], schedule.clip)
            optimizer.step()
            live.write_()
        values = live.graft()
    tuned = {name: value.clone() for name, value in run.tuned.items()}
    for name, inside, place in region.by_parameter():
        tuned[name].view(-1)[inside] = values.values[place].to(tuned[name])
    return replace(run, tuned=tuned)


def _scores(
    bench: Bench,
    heads: Sequence[dict[str, Tensor]],
    *,
    run: DenseRun | None = None,
    split: str = "test",
) -> list[float]:
    """Ask every task of the model as it is now, or of a run, through the heads of the joint run."""
    found: list[float] = []
    tuned = replace_parameters(bench.task(0).parameters, run.tuned) if run else nullcontext()
    with tuned:
        for label, head in enumerate(heads):
            with replace_parameters(bench.task(label).head, head):
                found.append(bench.answers(label, split=split).score)
    return found

"""Fine-tuning: the loop that trains parameters of a model and keeps their best step on dev."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.errors import DivergedError, NotFinite
from cl_graft.grafts.graft import copy_, snapshot
from cl_graft.grafts.model_state import preserve_parameters, train_only
from cl_graft.grafts.region import Parameters
from cl_graft.runtime.checkpoints import (
    NO_CHECKPOINT,
    Checkpoint,
    State,
    join_tensors,
    load_optimizer_,
    optimizer_state,
    select_tensors,
)
from cl_graft.runtime.seeding import generator, seeded
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.precision import LossScale
from cl_graft.training.rate_schedule import rate_share, with_rate_schedule
from cl_graft.training.train_mode import freeze_statistics

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class FineTuned:
    """The outcome of a dense run.

    Attributes:
        tensors: Trained parameters at the kept step, by name.
        step: Step that was kept, from 1.
        dev: Score of that step on dev; None if dev was not evaluated.
        losses: Training loss of every step.
        path: Σ −g·Δθ up to the kept step by name, fp32, where g is the gradient of a step's batch
            (before clipping) and Δθ the step's move; empty if it was not gathered.
    """

    tensors: dict[str, Tensor]
    step: int
    dev: float | None
    losses: list[float] = field(default_factory=list)
    path: dict[str, Tensor] = field(default_factory=dict)


def fine_tune(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    *,
    loss: Callable[[int], Tensor | Iterable[Tensor]],
    settings: FineTuning,
    seed: int,
    path: bool = False,
    anchor: Parameters = _NOTHING,
    scale: LossScale | None = None,
    dev_score: Callable[[], float] | None = None,
    on_step: Callable[[int, float], None] | None = None,
    on_evaluation: Callable[[int, float], None] | None = None,
    checkpoint: Checkpoint = NO_CHECKPOINT,
    through: Iterable[nn.Parameter] = (),
    rates: Mapping[str, float] = _NOTHING,
    phase: str = "dense fine-tuning",
) -> FineTuned:
    """Train `parameters` of a model; every other parameter is frozen meanwhile.

    The model is left at its last step; the tensors of the kept step are returned.

    Args:
        model: The model, put into train mode.
        parameters: Parameters to train, by name.
        loss: Function of a step, from 0, that returns the mean loss of its batch, or the terms of
            this loss, which are computed one by one.
        settings: Schedule and optimiser.
        seed: Dropout at step t is a function of (seed, t).
        path: Whether to gather `FineTuned.path`, which takes two more copies of the parameters.
        anchor: Base values of the parameters that `settings.l1` and `settings.mixout` act on.
        scale: Scales the loss, for fp16; steps that overflow are skipped.
        dev_score: Score on dev, higher is better; called in eval mode.
        on_step: Called after every step with its number (from 1) and its loss.
        on_evaluation: Called after every evaluation on dev with the step's number and the score.
        checkpoint: Source of an interrupted run's state, and target of its steps.
        through: Other parameters of the model that require gradients, because hooks pass these on
            to `parameters` (`cl_graft.training.region_parameters`).
        rates: Learning rates of some parameters, > 0, by name; the others take `settings.lr`.
        phase: Name of the run in errors.

    Raises:
        DivergedError: If a loss or a weight that would be returned is NaN or infinite.

    Examples:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> found = fine_tune(
        ...     model,
        ...     dict(model.named_parameters()),
        ...     loss=lambda step: (model(torch.ones(4, 1)) - 3).square().mean(),
        ...     settings=FineTuning(steps=50, lr=0.2, weight_decay=0.0),
        ...     seed=0,
        ... )
        >>> round(found.tensors["weight"].item(), 1)
        3.0
    """
    settings = with_rate_schedule(settings)
    rate_at = partial(
        rate_share,
        steps=settings.steps,
        decay=settings.lr_decay or "constant",
        warm_up=settings.warm_up or 0.0,
    )
    run = _Run(parameters, settings, anchor=anchor, scale=scale, path=path, rates=rates)
    optimizer, losses = run.optimizer, run.losses
    first_rates = [group["lr"] for group in optimizer.param_groups]
    evaluated = evaluated_steps(settings.steps, settings.evaluations) if dev_score else set()

    def make_error(what: str, step: int) -> DivergedError:
        is_first = step == 1 and what.startswith("the loss")
        lr = settings.lr * rate_at(step - 1)
        return DivergedError(
            f"{what} at step {step} of {phase} with lr {lr:g}; "
            f"{DivergedError.before_any_step if is_first else 'a lower lr usually helps'}"
        )

    left = checkpoint.load()
    if left is not None:
        run.load_state_(left)
    with ExitStack() as after:
        after.callback(model.eval)
        after.enter_context(train_only(model, [*parameters.values(), *through]))
        for step in range(len(losses), settings.steps):
            model.train()
            freeze_statistics(model)
            optimizer.zero_grad()
            for group, rate in zip(optimizer.param_groups, first_rates, strict=True):
                group["lr"] = rate * rate_at(step)
            mixed = mix_weights(parameters, anchor, p=settings.mixout, seed=seed, step=step)
            with seeded(seed, "dropout", step), mixed if settings.mixout else nullcontext():
                losses.append(backpropagate(loss(step), scale))
            if not math.isfinite(losses[-1]):
                raise make_error(f"the loss is {losses[-1]}", step + 1)
            if scale is None or scale.unscale_(parameters.values()):
                run.move_()
            if on_step:
                on_step(step + 1, losses[-1])
            if dev_score and step + 1 in evaluated:
                optimizer.zero_grad()  # as large as the weights, and of no use any more
                model.eval()
                try:
                    score = dev_score()
                except NotFinite as error:
                    raise make_error(str(error), step + 1) from error
                if on_evaluation:
                    on_evaluation(step + 1, score)
                run.keep_better_(step + 1, score)
            checkpoint.offer(run.state)
    best = run.best or FineTuned(snapshot(parameters), settings.steps, None, path=run.path)
    if not all(bool(tensor.isfinite().all()) for tensor in best.tensors.values()):
        raise make_error("weights are NaN or infinite", best.step)
    return replace(best, losses=losses)


def beats(score: float, best: float) -> bool:
    """Tell whether a score is as good as the best so far; a number beats NaN."""
    return math.isnan(best) or score >= best


class _Run:
    """All that the next step of a run depends on, and what the run has found so far."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        settings: FineTuning,
        *,
        anchor: Parameters,
        scale: LossScale | None,
        path: bool,
        rates: Mapping[str, float],
    ) -> None:
        self._parameters = parameters
        self._settings = settings
        self._anchor = anchor
        self._scale = scale
        self.optimizer = _optimizer(parameters, settings, rates)
        self.losses: list[float] = []
        self.best: FineTuned | None = None
        self._before = snapshot(parameters) if path else {}
        self.path = {
            name: torch.zeros_like(tensor, dtype=torch.float32)
            for name, tensor in self._before.items()
        }

    def move_(self) -> None:
        """Clip the gradients, take a step, and apply the L1 penalty, reduced by as much."""
        settings, parameters = self._settings, self._parameters
        clipped = 1.0
        if settings.clip:
            norm = nn.utils.clip_grad_norm_(list(parameters.values()), settings.clip)
            if settings.l1 or self.path:  # a GPU is waited for here
                clipped = min(1.0, settings.clip / (float(norm) + 1e-6))  # as torch computes it
        for name, before in self._before.items():
            before.copy_(parameters[name].detach())
        self.optimizer.step()
        if settings.l1:
            strength = clipped * settings.l1
            shrink_movement_(parameters, self._anchor, self.optimizer, strength=strength)
        for name, before in self._before.items():
            parameter = parameters[name]
            if parameter.grad is not None:
                moved = parameter.detach().float() - before.float()
                self.path[name].addcmul_(parameter.grad.float(), moved, value=-(1 / clipped))

    def keep_better_(self, step: int, dev: float) -> None:
        """Keep the values if their score is the best; one copy is held, not two."""
        best = self.best
        if best is None:
            self.best = FineTuned(snapshot(self._parameters), step, dev, path=snapshot(self.path))
        elif best.dev is None or beats(dev, best.dev):
            copy_(best.tensors, self._parameters)
            copy_(best.path, self.path)
            self.best = replace(best, step=step, dev=dev)

    def state(self) -> State:
        moments, rates = optimizer_state(self.optimizer)
        best = self.best
        tensors = join_tensors(
            now={name: parameter.detach() for name, parameter in self._parameters.items()},
            optimizer=moments,
            walked=self.path,
            best=best.tensors if best is not None else {},
            path=best.path if best is not None else {},
        )
        values = {
            "losses": self.losses,
            "optimizer": rates,
            "scale": self._scale.state() if self._scale is not None else None,
            "best": {"step": best.step, "dev": best.dev} if best is not None else None,
        }
        return tensors, values

    def load_state_(self, state: State) -> None:
        tensors, values = state
        copy_(self._parameters, select_tensors(tensors, "now"))
        load_optimizer_(self.optimizer, select_tensors(tensors, "optimizer"), values["optimizer"])
        if self.path:
            copy_(self.path, select_tensors(tensors, "walked"))
        if self._scale is not None:
            self._scale.load_state_(values["scale"])
        self.losses[:] = values["losses"]
        if values["best"] is not None:
            device = next(iter(self._parameters.values())).device
            tuned, path = (
                {name: tensor.to(device) for name, tensor in select_tensors(tensors, group).items()}
                for group in ("best", "path")
            )
            self.best = FineTuned(tuned, **values["best"], path=path)


def backpropagate(loss: Tensor | Iterable[Tensor], scale: LossScale | None = None) -> float:
    """Add the gradient of a loss, or of the terms of one, to the parameters'; return the loss."""
    parts: list[Tensor] = []
    for part in [loss] if isinstance(loss, Tensor) else loss:
        (part if scale is None else part * scale.value).backward()
        parts.append(part.detach().float())
    return float(sum(parts))  # once a step: a GPU is waited for here


def _optimizer(
    parameters: Mapping[str, nn.Parameter], settings: FineTuning, rates: Mapping[str, float]
) -> torch.optim.Optimizer:
    every = settings.decay == "all"
    matrices = {n for n, p in parameters.items() if p.dim() > 1 and not n.endswith("bias")}
    decayed = {n: p for n, p in parameters.items() if every or n in matrices}
    plain = {n: p for n, p in parameters.items() if n not in decayed}
    groups = [
        {"params": group, "weight_decay": weight_decay, "lr": rate}
        for named, weight_decay in ((decayed, settings.weight_decay), (plain, 0.0))
        for rate in sorted({settings.lr, *rates.values()})
        if (group := [p for n, p in named.items() if rates.get(n, settings.lr) == rate])
    ]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr)
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)


def evaluated_steps(steps: int, evaluations: int) -> set[int]:
    """Return the steps, from 1, after which dev is evaluated: evenly spaced, with the last."""
    count = min(evaluations, steps)
    return {round(steps * (i + 1) / count) for i in range(count)} if count else set()


def shrink_movement_(
    parameters: Mapping[str, nn.Parameter],
    base: Parameters,
    optimizer: torch.optim.Optimizer,
    *,
    strength: float,
) -> None:
    """Take the proximal step of `strength`·‖θ − base‖₁ after an optimiser's step, in place.

    The L1 penalty on the movement (Panigrahi et al., 2023, Sec. 3.3 and Fig. 5,
    https://arxiv.org/abs/2302.06600; λ = 0.001) keeps weights at the base bit for bit by this step:
    θ ← base + sign(d)·max(|d| − rate·λ, 0) with d = θ − base. The rate is that of the step before,
    coordinate by coordinate: lr with SGD, lr/(√v̂ + ε) with AdamW.

    Examples:
        >>> weight = nn.Parameter(torch.tensor([1.0, 0.2]))
        >>> optimizer = torch.optim.SGD([weight], lr=1.0)
        >>> shrink_movement_({"w": weight}, {"w": torch.zeros(2)}, optimizer, strength=0.5)
        >>> weight.detach()
        tensor([0.5000, 0.0000])
    """
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    with torch.no_grad():
        for name, value in base.items():
            parameter = parameters[name]
            rate = _rate(optimizer, parameter, groups[id(parameter)])
            moved = parameter.detach() - value
            left = moved.abs() - rate * strength
            shrunk = value + moved.sign() * left
            parameter.copy_(torch.where(left > 0, shrunk, value))


def _rate(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, group: Mapping[str, object]
) -> float | Tensor:
    """Return the length of the last step per unit of gradient."""
    lr, state = float(group["lr"]), optimizer.state.get(parameter, {})  # type: ignore[arg-type]
    if "exp_avg_sq" not in state:
        return lr
    beta = group["betas"][1]  # type: ignore[index]
    correction = 1 - beta ** float(state["step"])
    return lr / ((state["exp_avg_sq"] / correction).sqrt() + group["eps"])


@contextmanager
def mix_weights(
    parameters: Mapping[str, nn.Parameter], base: Parameters, *, p: float, seed: int, step: int
) -> Iterator[None]:
    """Let a model compute with Mixout's weights for a `with` block, then put its own back.

    Every weight is replaced by its base value with probability p, and the others are moved away
    from it so that the expectation stays (Lee et al., 2020, Sec. 3.2,
    https://arxiv.org/abs/1909.11299): θ̃ = base + (1 − M) ⊙ (θ − base) / (1 − p) with M ~
    Bernoulli(p). Gradients that were gathered inside become those of the weights themselves. M
    depends on `seed`, `step` and the parameter's name.
    """
    mixed = {name: parameters[name] for name in base}
    masks = {name: draw_mask(value, 1 - p, seed, step, name) for name, value in base.items()}
    with preserve_parameters(mixed) as before:
        for name, value in base.items():
            moved = (before[name] - value) * masks[name] / (1 - p)
            copy_(mixed, {name: value + moved})
        yield
    for name, parameter in mixed.items():
        if parameter.grad is not None:
            parameter.grad.mul_(masks[name]).div_(1 - p)


def draw_mask(like: Tensor, chance: float, seed: int, step: int, name: str) -> Tensor:
    """Draw the mask M of a tensor and a step, whose entries are True with a chance."""
    draws = torch.rand(like.shape, generator=generator(seed, "mixout", step, name))
    return (draws < chance).to(like.device)

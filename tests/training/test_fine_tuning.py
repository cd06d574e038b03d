"""Dense runs are functions of their seed and change nothing but what they train."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from region_strategies import TwoLayers, model_bits
from torch import Tensor, nn

from cl_graft.errors import DivergedError
from cl_graft.runtime.batching import BatchOrder
from cl_graft.training.fine_tuning import FineTuned, fine_tune
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.train_mode import freeze_statistics

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(12) % 3


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = TwoLayers()
        self.batch_norm = nn.BatchNorm1d(3)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.batch_norm(self.body(x)))


def _run(
    model: nn.Module,
    *,
    settings: FineTuning,
    dev_score: Callable[[], float] | None = None,
    train: str = "body",
    seed: int = 0,
    loss_at: dict[int, float] | None = None,
) -> FineTuned:
    order = BatchOrder(12, settings.batch_size, seed)

    def loss(step: int) -> Tensor:
        rows = order(step)
        value = nn.functional.cross_entropy(model(X[rows]), Y[rows])
        return value * (loss_at or {}).get(step, 1.0)

    parameters = {n: p for n, p in model.named_parameters() if n.startswith(train)}
    return fine_tune(
        model, parameters, loss=loss, settings=settings, seed=seed, dev_score=dev_score
    )


def _same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)


SETTINGS = [
    FineTuning(steps=7, batch_size=5, lr=0.1, momentum=0.9),
    FineTuning(steps=7, batch_size=5, lr=0.01, optimizer="adamw", clip=0.0, weight_decay=0.1),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_same_seed_gives_the_same_bits_and_another_one_others(settings: FineTuning) -> None:
    first, second, other = _Model(), _Model(), _Model()
    torch.rand(3)
    a = _run(first, settings=settings)
    torch.rand(5)
    b = _run(second, settings=settings)
    c = _run(other, settings=settings, seed=1)
    assert a.losses == b.losses != c.losses
    assert _same(a.tensors, b.tensors)
    assert _same(model_bits(first), model_bits(second))
    assert not _same(a.tensors, c.tensors)


@pytest.mark.parametrize("settings", SETTINGS)
def test_looking_at_dev_in_between_does_not_change_a_bit(settings: FineTuning) -> None:
    watched, alone = _Model(), _Model()

    def dev_score() -> float:
        assert not watched.training
        torch.rand(11)
        return float(watched(X).sum().detach())

    a = _run(watched, settings=settings, dev_score=dev_score)
    b = _run(alone, settings=settings)
    assert a.losses == b.losses
    assert _same(model_bits(watched), model_bits(alone))


@pytest.mark.parametrize("settings", SETTINGS)
def test_parameters_that_do_not_train_keep_their_bits_and_flags(settings: FineTuning) -> None:
    model = _Model()
    model.body.first.bias.requires_grad_(False)
    model.batch_norm.weight.requires_grad_(False)
    flags = {n: p.requires_grad for n, p in model.named_parameters()}
    before = model_bits(model)
    _run(model, settings=settings, train="body.second")
    after = model_bits(model)
    changed = {n for n in before if not torch.equal(before[n], after[n])}
    assert changed == {"body.second.weight", "body.second.bias"}
    assert {n: p.requires_grad for n, p in model.named_parameters()} == flags
    assert all(p.grad is None for p in model.parameters())


def test_batch_norm_statistics_do_not_move_while_its_weights_train() -> None:
    model = _Model()
    before = model_bits(model)
    _run(model, settings=SETTINGS[0], train="batch_norm")
    after = model_bits(model)
    changed = {n for n in before if not torch.equal(before[n], after[n])}
    assert changed == {"batch_norm.weight", "batch_norm.bias"}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run_and_says_where(bad: float) -> None:
    model = _Model()
    with pytest.raises(DivergedError, match=r"step 4 of dense fine-tuning with lr 0\.1"):
        _run(model, settings=SETTINGS[0], loss_at={3: bad})
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert all(p.grad is None for p in model.parameters())
    assert not model.training


def test_weights_that_became_nan_in_the_last_step_are_not_returned() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    with pytest.raises(DivergedError, match="step 1"):
        fine_tune(
            model,
            dict(model.named_parameters()),
            loss=lambda step: model(torch.ones(1, 1)).abs().sqrt().sum(),
            settings=FineTuning(steps=1),
            seed=0,
        )


@pytest.mark.parametrize(
    ("scores", "best"),
    [([0.5, 0.9, math.nan, 0.9, 0.2], (8, 0.9)), ([math.nan, 0.5, 0.1, 0.2, 0.3], (4, 0.5))],
)
def test_the_best_point_on_dev_is_kept_and_ties_go_to_the_later(
    scores: list[float], best: tuple[int, float]
) -> None:
    kept: list[dict[str, Tensor]] = []
    model = _Model()

    def dev_score() -> float:
        kept.append({n: t.clone() for n, t in model.body.named_parameters()})
        return scores[len(kept) - 1]

    found = _run(model, settings=FineTuning(steps=10, batch_size=4), dev_score=dev_score)
    assert (found.step, found.dev, len(found.losses)) == (*best, 10)
    tensors = {n.removeprefix("body."): t for n, t in found.tensors.items()}
    assert _same(tensors, kept[best[0] // 2 - 1])


@pytest.mark.parametrize(
    ("steps", "evaluations", "looks"),
    [(10, 5, [2, 4, 6, 8, 10]), (3, 5, [1, 2, 3]), (7, 2, [4, 7]), (5, 1, [5]), (5, 0, [])],
)
def test_looks_at_dev_are_evenly_spaced_and_the_last_is_at_the_end(
    steps: int, evaluations: int, looks: list[int]
) -> None:
    done: list[int] = []
    seen: list[int] = []
    model = _Model()

    def dev_score() -> float:
        seen.append(done[-1])
        return 0.0

    order = BatchOrder(12, 4, 0)
    result = fine_tune(
        model,
        dict(model.body.named_parameters()),
        loss=lambda step: nn.functional.cross_entropy(model(X[order(step)]), Y[order(step)]),
        settings=FineTuning(steps=steps, evaluations=evaluations),
        seed=0,
        dev_score=dev_score,
        on_step=lambda step, _: done.append(step),
    )
    assert seen == looks
    assert done == list(range(1, steps + 1))
    assert result.step == steps
    assert result.dev == (0.0 if looks else None)


@pytest.mark.parametrize("decay", ["matrices", "all"])
def test_weight_decay_spares_biases_and_layer_norms_unless_told(
    decay: Literal["matrices", "all"],
) -> None:
    model = _Model()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    fine_tune(
        model,
        dict(model.named_parameters()),
        loss=lambda step: 0.0 * model(X).sum(),
        settings=FineTuning(steps=1, lr=0.1, weight_decay=0.5, decay=decay),
        seed=0,
    )
    for name, parameter in model.named_parameters():
        shrunk = parameter.dim() > 1 or decay == "all"
        factor = 1 - 0.1 * 0.5 if shrunk else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * factor)


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"batch_size": 0}, {"lr": 0.0}, {"l1": -1.0}, {"mixout": 1.0}]
)
def test_settings_that_cannot_train_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: Input should be"):
        FineTuning(**wrong)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.spectral_norm` is deprecated")
@pytest.mark.parametrize(
    "spectral_norm", [nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm]
)
def test_the_power_iteration_of_spectral_norms_stands_still(spectral_norm: Any) -> None:
    model = nn.Sequential(spectral_norm(nn.Linear(4, 4)), nn.Dropout()).train()
    freeze_statistics(model)
    assert model[1].training
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert before
    model(torch.ones(2, 4)).sum().backward()
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())

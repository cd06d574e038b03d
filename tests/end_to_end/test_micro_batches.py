"""A batch computed in parts trains what the whole batch trains."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from avalanche.core import SupervisedPlugin
from avalanche.training import EWC, Naive
from tiny_streams import learner, mlp, quiet_evaluator, vector_stream
from torch import nn

from cl_graft.strategies import MicroBatches, ScaleLoss
from cl_graft.training.precision import LossScale


class Seen(SupervisedPlugin, supports_distributed=False):
    """Keeps what a strategy holds after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def after_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        kept = (strategy.mb_x, strategy.mb_output, strategy.loss)
        self.steps.append(tuple(tensor.detach().clone() for tensor in kept))


def trained(kind: Any, plugins: list[Any], **chosen: Any) -> tuple[list[torch.Tensor], Seen]:
    """Train an MLP with a stock strategy on two tasks."""
    model, seen = mlp(), Seen()
    strategy = kind(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=10,
        train_epochs=2,
        plugins=[*plugins, seen],
        evaluator=quiet_evaluator(),
        **chosen,
    )
    for experience in vector_stream(labels=[0, 1]).streams["train"]:
        torch.manual_seed(1)
        strategy.train(experience, eval_streams=[])
    return [parameter.detach() for parameter in model.parameters()], seen


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize(("kind", "chosen"), [(Naive, {}), (EWC, {"ewc_lambda": 5.0})])
def test_a_stock_strategy_trains_the_same_weights(kind, chosen, rows):
    whole, _ = trained(kind, [], **chosen)
    parts, _ = trained(kind, [MicroBatches(rows)], **chosen)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_after_a_step_the_strategy_holds_the_whole_batch_and_its_mean_loss(scaled):
    scale = LossScale(1024.0) if scaled else None
    plugins = [MicroBatches(4, scale=scale), *([ScaleLoss(scale)] if scale else [])]
    _, whole = trained(Naive, [])
    _, parts = trained(Naive, plugins)
    assert len(whole.steps) == len(parts.steps)
    for one, other in zip(whole.steps, parts.steps, strict=True):
        assert torch.equal(one[0], other[0])
        torch.testing.assert_close(one[1], other[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(one[2].view(()), other[2].view(()), rtol=1e-4, atol=1e-5)


def test_a_step_that_overflows_moves_nothing_and_halves_the_scale():
    class Overflow(SupervisedPlugin, supports_distributed=False):
        def after_backward(self, strategy: Any, **kwargs: Any) -> None:
            next(strategy.model.parameters()).grad.fill_(float("inf"))

        def after_update(self, strategy: Any, **kwargs: Any) -> None:
            values.append([p.detach().clone() for p in strategy.model.parameters()])

    values: list[list[torch.Tensor]] = []
    scale = LossScale(2.0**14)
    trained(Naive, [Overflow(), ScaleLoss(scale)])
    assert scale.value < 2.0**14
    for step in values:
        assert all(torch.equal(a, b) for a, b in zip(step, values[0], strict=True))


@pytest.mark.parametrize("rows", [3, 8])
def test_a_region_trains_the_same_values(rows):
    def values(plugins: list[Any]) -> torch.Tensor:
        run = learner(mlp(), vector_stream(labels=[0]), plugins=plugins, train_epochs=2)
        run.strategy.train(run.train_stream)
        assert run.plugin.bank is not None
        return run.plugin.bank.entries[0].owned.values

    torch.testing.assert_close(values([]), values([MicroBatches(rows)]), rtol=1e-4, atol=1e-6)

"""Training that diverges inside Avalanche's loop stops at once and leaves what was good."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from slow_cases import slow
from tiny_streams import bits, quick, quiet_evaluator, text_learner
from torch import nn

from cl_graft.errors import DivergedError
from cl_graft.strategies import MicroBatches, ScaleLoss, StopDiverged
from cl_graft.training.precision import LossScale


class Poison(SupervisedPlugin):
    """Multiply the loss of a step by a value."""

    def __init__(self, value: float, *, step: int, experience: int = 0) -> None:
        super().__init__()
        self.value, self.step, self.experience = value, step, experience

    def before_backward(self, strategy, **kwargs) -> None:
        clock = strategy.clock
        if (clock.train_exp_counter, clock.train_exp_iterations) == (self.experience, self.step):
            strategy.loss = strategy.loss * self.value


@pytest.mark.parametrize(
    ("value", "step", "halves"),
    [(inf, 2, True), *slow((nan, 0, False), (nan, 2, False), (nan, 2, True), (inf, 2, False))],
)
def test_region_training_stops_and_the_bank_keeps_what_it_had(tiny_bert, value, step, halves):
    poison, scale = Poison(value, step=step, experience=1), LossScale()
    more = [MicroBatches(4, scale=scale), ScaleLoss(scale)] if halves else []
    run = text_learner(tiny_bert, plugins=[poison, *more])
    run.strategy.train(run.train_stream[0], eval_streams=[])
    entry, learned = run.plugin.bank.entries[0], run.hashes()
    why = "a lower lr" if step else "no step was taken yet, so the base or the data are"
    told = rf"task 'task1': .* step {step + 1} of region training with lr 0\.1; {why}"
    with pytest.raises(DivergedError, match=told):
        run.strategy.train(run.train_stream[1], eval_streams=[])
    assert len(run.plugin.bank) == 1
    assert run.plugin.bank.entries[0] is entry
    run.plugin.abandon()
    assert run.hashes()[0] == learned[0]
    poison.value = 1.0
    run.strategy.train(run.train_stream[1], eval_streams=[])
    assert len(run.plugin.bank) == 2


def test_values_that_the_last_step_made_infinite_become_no_entry(tiny_bert):
    class Explode(SupervisedPlugin):
        def before_update(self, strategy, **kwargs) -> None:
            if strategy.clock.train_exp_iterations == 3:
                vector = strategy.optimizer.param_groups[0]["params"][0]
                vector.grad = torch.full_like(vector, inf)

    run = text_learner(tiny_bert, ("scope",), plugins=[Explode()])
    before = bits(run.unwrapped)
    with pytest.raises(DivergedError, match="'task0': weights are NaN or infinite after 4 steps"):
        run.strategy.train(run.train_stream[0], eval_streams=[])
    assert not run.plugin.bank.entries
    assert bits(run.unwrapped) == before


def test_a_look_at_dev_during_region_training_that_cannot_be_scored_names_the_task(tiny_bert):
    run = text_learner(tiny_bert, ("scope",), settings=quick(evaluate_every=2))
    forward, calls = run.unwrapped.forward, 0

    def poisoned(*inputs, **more):
        return forward(*inputs, **more) * (nan if not torch.is_grad_enabled() else 1.0)

    class Late(SupervisedPlugin):
        def after_update(self, strategy, **kwargs) -> None:
            run.unwrapped.forward = poisoned

    del calls
    run.strategy.plugins.append(Late())
    with pytest.raises(DivergedError, match="task 'task0': logits hold NaN"):
        run.strategy.train(run.train_stream[0], eval_streams=[])


def test_any_other_strategy_stops_before_the_step(tiny_bert):
    run = text_learner(tiny_bert)
    model = run.model
    seen: list[str] = []

    class Keep(SupervisedPlugin):
        def before_update(self, strategy, **kwargs) -> None:
            seen.append(bits(model.task_model))

    naive = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.25),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=8,
        plugins=[Poison(inf, step=1), Keep(), StopDiverged()],
        evaluator=quiet_evaluator(),
    )
    with pytest.raises(DivergedError, match=r"the loss is inf at step 2 of training with lr 0\.25"):
        naive.train(run.train_stream[0], eval_streams=[])
    assert bits(model.task_model) == seen[-1]

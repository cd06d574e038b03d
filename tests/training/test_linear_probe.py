"""Heads fitted to the features of a frozen model."""

from dataclasses import replace

import pytest
import torch
from small_tasks import make_task
from torch import nn
from torch.utils.data import TensorDataset

from cl_graft.grafts.graft import snapshot
from cl_graft.training.examples import Examples
from cl_graft.training.learnable_task import Passes
from cl_graft.training.linear_probe import RIDGES, count_fit_passes, fit_head


def test_a_warm_head_is_where_the_penalised_loss_is_flat():
    task = make_task()
    fitted = fit_head(task, rows=150, seed=0)
    task.model.eval()
    inputs, targets = task.train.batch(range(150))
    with torch.no_grad():
        features = task.model.get_submodule("body")(inputs)
    weight = fitted["head.weight"].requires_grad_()
    loss = nn.functional.cross_entropy(features @ weight.T + fitted["head.bias"], targets)
    (gradient,) = torch.autograd.grad(loss, [weight])
    scale = features.square().sum(1).mean()
    left = [(gradient + ridge * scale * weight).abs().max() for ridge in RIDGES]
    assert min(left) < 1e-3 < sorted(left)[1]


def test_dev_chooses_the_penalty():
    task = make_task()
    inputs, targets = task.train.batch(range(150))
    seen, upside_down = (
        replace(task, dev=Examples(TensorDataset(inputs, labels)))
        for labels in (targets, 1 - targets)
    )
    # The rows that it is fitted to are answered best without a penalty, their opposite with one.
    norms = [fit_head(t, rows=150, seed=0)["head.weight"].norm() for t in (seen, upside_down)]
    assert norms[1] < 0.9 * norms[0]


def test_a_fit_takes_its_rows_and_those_of_dev_forward():
    task = make_task()
    assert count_fit_passes(task, rows=64) == Passes(forward=64 + 50)
    assert count_fit_passes(task, rows=1000) == Passes(forward=150 + 50)
    assert count_fit_passes(replace(task, head_module=None), rows=64) == Passes()


def test_warming_up_changes_nothing_but_the_mode():
    task = make_task()
    task.model.train()
    before = snapshot(dict(task.model.named_parameters()))
    state = torch.get_rng_state()
    fit_head(task, rows=64, seed=0)
    assert not task.model.training
    assert torch.equal(torch.get_rng_state(), state)
    for name, parameter in task.model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


def test_a_head_in_half_precision_stays_in_half_precision():
    task = make_task()
    task.model.get_submodule("head").to(torch.bfloat16)
    task = replace(
        task,
        head={f"head.{n}": p for n, p in task.model.get_submodule("head").named_parameters()},
        forward=lambda x: task.model.get_submodule("head")(
            task.model.get_submodule("body")(x).bfloat16()
        ).float(),
    )
    fitted = fit_head(task, rows=150, seed=0)
    assert all(value.dtype == torch.bfloat16 for value in fitted.values())


@pytest.mark.parametrize("missing", [{"head": {}}, {"head_module": None}])
def test_without_a_head_of_its_own_nothing_is_computed(missing):
    def refuse(inputs):
        raise AssertionError("the model was asked")

    task = replace(make_task(), forward=refuse, **missing)
    fitted = fit_head(task, rows=64, seed=0)
    assert fitted.keys() == task.head.keys()
    assert all(torch.equal(value, task.head[name]) for name, value in fitted.items())


def test_a_head_that_is_called_twice_a_batch_is_refused():
    task = make_task()
    head, body = task.model.get_submodule("head"), task.model.get_submodule("body")
    twice = replace(task, forward=lambda x: head(body(x)) + head(body(-x)))
    with pytest.raises(ValueError, match="called 2 times in a batch"):
        fit_head(twice, rows=64, seed=0)

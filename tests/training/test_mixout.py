"""Mixout: weights fall back to the base at random, and nothing stays of it."""

from dataclasses import replace

import pytest
import torch
from small_tasks import make_task, moved_model

from cl_graft.grafts.graft import snapshot
from cl_graft.runtime.seeding import generator
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.fine_tuning import mix_weights
from cl_graft.training.fine_tuning_settings import FineTuning


def test_in_training_a_share_of_the_weights_is_the_bases_and_the_rest_moves_on_to_keep_the_mean():
    _, parameters, base = moved_model()
    before = snapshot(parameters)
    with mix_weights(parameters, base, p=0.7, seed=0, step=3):
        movement = (parameters["weight"].detach() - base["weight"]).flatten()
        fallen = movement == 0
        assert float(fallen.float().mean()) == pytest.approx(0.7, abs=0.06)
        torch.testing.assert_close(movement[~fallen], torch.full_like(movement[~fallen], 1 / 0.3))
        assert float(movement.mean()) == pytest.approx(1.0, abs=0.2)
    assert all(torch.equal(before[name], parameters[name]) for name in before)


def test_gradients_are_those_of_the_weights_as_autograd_has_them():
    model, parameters, base = moved_model(size=20)
    inputs = torch.randn(5, 20, generator=generator(0, "inputs"))
    with mix_weights(parameters, base, p=0.4, seed=1, step=0):
        weights = snapshot(parameters)
        model(inputs).square().sum().backward()
    free = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    mixed = {}
    for name, value in free.items():
        fallen = (weights[name] == base[name]).float()
        # Lee et al., 2020, Eq. 5, as it stands.
        mixed[name] = (fallen * base[name] + (1 - fallen) * value - 0.4 * base[name]) / 0.6
        torch.testing.assert_close(weights[name], mixed[name].detach())
    torch.func.functional_call(model, mixed, (inputs,)).square().sum().backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(parameter.grad, free[name].grad, rtol=1e-4, atol=1e-4)


def test_weights_come_back_after_an_exception():
    _, parameters, base = moved_model()
    before = snapshot(parameters)
    with pytest.raises(RuntimeError), mix_weights(parameters, base, p=0.5, seed=0, step=0):
        raise RuntimeError
    assert all(torch.equal(before[name], parameters[name]) for name in before)


def test_a_dense_run_with_mixout_moves_away_from_one_without_and_is_a_function_of_its_seed():
    plain, first, second, other = (
        fine_tune_task(
            make_task(), FineTuning(steps=8, lr=0.5, mixout=mixout, evaluations=0), seed=seed
        )
        for mixout, seed in ((0.0, 0), (0.5, 0), (0.5, 0), (0.5, 1))
    )
    for name in plain.tuned:
        assert torch.equal(first.tuned[name], second.tuned[name])
        assert not torch.equal(first.tuned[name], plain.tuned[name])
        assert not torch.equal(first.tuned[name], other.tuned[name])


def test_the_head_is_not_mixed():
    task = make_task()
    head = snapshot(task.head)
    seen = []

    def forward(inputs):
        seen.append(all(torch.equal(head[name], value) for name, value in task.head.items()))
        return task.model["head"](task.model["body"](inputs))

    fine_tune_task(
        replace(task, forward=forward), FineTuning(steps=1, mixout=0.9, evaluations=0), seed=0
    )
    assert seen == [True]

"""A dense run that is interrupted after any step ends on the bits of one that was not."""

import pytest
import torch
from interrupted import KeptPhases, Trip, ends_of_steps
from region_strategies import TwoLayers
from slow_cases import slow
from small_tasks import MemoryCache, make_task, settings
from torch import nn

from cl_graft.grafts.graft import snapshot
from cl_graft.localization.region_search import find_region
from cl_graft.runtime.batching import BatchOrder
from cl_graft.runtime.checkpoints import NO_CHECKPOINT, load_optimizer_, optimizer_state
from cl_graft.runtime.run_context import RunContext
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.fine_tuning import fine_tune
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.precision import LossScale

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(12) % 3
STEPS = 6
PLANS = {
    "sgd": FineTuning(steps=STEPS, batch_size=5, lr=0.1, evaluations=3),
    "momentum": FineTuning(steps=STEPS, batch_size=5, lr=0.1, momentum=0.9, evaluations=2),
    "adamw": FineTuning(steps=STEPS, batch_size=5, lr=0.01, optimizer="adamw", evaluations=3),
    "last": FineTuning(steps=STEPS, batch_size=5, lr=0.1, evaluations=0),
}


def dense(plan, checkpoint, *, path=True, scale=None):
    model = nn.Sequential(TwoLayers(), nn.Dropout(0.3))
    parameters = dict(model.named_parameters())
    order = BatchOrder(12, plan.batch_size, 0)

    def score():
        with torch.no_grad():
            return -float(nn.functional.cross_entropy(model(X), Y))

    return fine_tune(
        model,
        parameters,
        loss=lambda step: nn.functional.cross_entropy(model(X[order(step)]), Y[order(step)]),
        settings=plan,
        seed=0,
        path=path,
        scale=scale,
        dev_score=score,
        checkpoint=checkpoint,
    )


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("step", [1, 3, STEPS])
def test_a_dense_run_interrupted_after_any_step_ends_on_the_same_bits(plan, step):
    undisturbed = dense(plan, NO_CHECKPOINT)
    phases = KeptPhases(trip_after=step)
    with pytest.raises(Trip):
        dense(plan, phases.at("dense-x"))
    again = dense(plan, phases.at("dense-x"))
    assert_same_bits(again.tensors, undisturbed.tensors)
    assert_same_bits(again.path, undisturbed.path)
    assert (again.step, again.dev) == (undisturbed.step, undisturbed.dev)
    assert again.losses == undisturbed.losses
    assert phases.offers == STEPS


def test_a_loss_scale_goes_on_where_it_stood():
    plan = PLANS["sgd"]
    # 2¹⁴⁰ overflows in fp32, so first steps are skipped and the scale is halved.
    whole, first, second = (LossScale(2.0**132, growth_every=2) for _ in range(3))
    undisturbed = dense(plan, NO_CHECKPOINT, scale=whole)
    phases = KeptPhases(trip_after=4)
    with pytest.raises(Trip):
        dense(plan, phases.at("dense-x"), scale=first)
    again = dense(plan, phases.at("dense-x"), scale=second)
    assert whole.skipped > 0
    assert second.state() == whole.state()
    assert_same_bits(again.tensors, undisturbed.tensors)


def test_a_state_of_an_optimizer_comes_back_whole():
    parameters = [nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(2, 2))]
    groups = [{"params": parameters[:1], "lr": 0.3}, {"params": parameters[1:], "lr": 0.1}]
    first = torch.optim.AdamW(groups, amsgrad=True)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    first.step()
    second = torch.optim.AdamW([dict(group) for group in groups], amsgrad=True)
    second.param_groups[0]["lr"] = 7.0
    load_optimizer_(second, *optimizer_state(first))
    assert second.param_groups[0]["lr"] == 0.3
    for parameter in parameters:
        assert second.state[parameter].keys() == first.state[parameter].keys()
        assert_same_bits(second.state[parameter], first.state[parameter])


@pytest.mark.parametrize("localizer", ["base_gradient", *slow("learned_mask", "path_integral")])
def test_finding_a_region_can_be_interrupted_anywhere(localizer):
    chosen = settings(localizer=localizer)

    def locate(phases, cache=None):
        task = make_task()
        before = snapshot(dict(task.model.named_parameters()))
        found = find_region(task, chosen, context=RunContext.of(cache, phases))
        assert_same_bits(snapshot(dict(task.model.named_parameters())), before)
        return found

    undisturbed = locate(None)
    offers = ends_of_steps(locate)
    assert offers == (4 if localizer == "base_gradient" else 30 + 4 * (localizer == "learned_mask"))
    for trip_after in range(1, offers + 1, 3):
        phases, cache = KeptPhases(trip_after=trip_after), MemoryCache()
        with pytest.raises(Trip):
            locate(phases, cache)
        again = locate(phases, cache)
        assert again.region == undisturbed.region
        assert again.passes == undisturbed.passes
        assert (again.dense.dev, again.graft_dev) == (undisturbed.dense.dev, undisturbed.graft_dev)
        assert phases.offers == offers


def test_a_dense_run_with_a_path_is_not_taken_up_by_one_without():
    task = make_task()
    phases = KeptPhases(trip_after=3)
    plan = FineTuning(steps=6, batch_size=16, lr=0.5)
    with pytest.raises(Trip):
        fine_tune_task(task, plan, seed=0, path=True, context=RunContext(checkpoints=phases))
    fine_tune_task(task, plan, seed=0, context=RunContext(checkpoints=phases))
    assert phases.offers == 3 + 6

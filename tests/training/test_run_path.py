"""The path that a dense run gathers: Σ −g·Δθ over its steps."""

from dataclasses import replace

import pytest
import torch
from small_tasks import FAST, MemoryCache, make_task, settings
from torch import nn

from cl_graft.localization.region_search import find_region
from cl_graft.runtime.run_context import RunContext
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.fine_tuning import fine_tune
from cl_graft.training.fine_tuning_settings import FineTuning

DRAW = torch.Generator().manual_seed(3)
INPUTS = torch.randn(64, 6, generator=DRAW)
TARGETS = INPUTS @ torch.randn(6, 2, generator=DRAW)


def quadratic_run(plan, *, dev_score=None, path=True):
    model = nn.Linear(6, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)

    def loss(step=0):
        return (model(INPUTS) - TARGETS).square().mean()

    own = {"settings": plan, "path": path, "dev_score": dev_score}
    return fine_tune(model, dict(model.named_parameters()), loss=loss, seed=0, **own)


PLANS = [
    FineTuning(steps=400, lr=2e-3, clip=0.0, weight_decay=0.0),
    FineTuning(steps=400, lr=5e-2, clip=0.05, weight_decay=0.0),
    FineTuning(steps=400, lr=2e-4, momentum=0.9, clip=0.0),
    FineTuning(steps=400, lr=2e-3, optimizer="adamw", clip=1.0),
]


@pytest.mark.parametrize("plan", PLANS)
def test_the_path_of_a_convex_run_sums_to_what_the_loss_fell(plan):
    outcome = quadratic_run(plan)
    fell = outcome.losses[0] - outcome.losses[-1]
    assert fell > 0.1 * outcome.losses[0]
    total = float(sum(part.sum() for part in outcome.path.values()))
    # One step more than the losses tell, and small steps overestimate by their curvature.
    assert total == pytest.approx(fell, rel=0.02)


def test_the_path_ends_at_the_kept_step():
    scores = iter([0.5, 0.4, 0.3, 0.2])
    plan = FineTuning(steps=40, lr=1e-2, clip=0.0, weight_decay=0.0, evaluations=4)
    outcome = quadratic_run(plan, dev_score=lambda: next(scores))
    assert outcome.step == 10
    short = quadratic_run(replace(plan, steps=10, evaluations=0))
    assert all(torch.equal(outcome.path[name], part) for name, part in short.path.items())


def test_gathering_a_path_changes_no_bit_of_the_run():
    plan = FineTuning(steps=20, lr=1e-2, momentum=0.5)
    plain = quadratic_run(plan, path=False)
    gathered = quadratic_run(plan)
    assert plain.path == {}
    assert all(torch.equal(plain.tensors[name], t) for name, t in gathered.tensors.items())


def test_a_path_is_kept_beside_its_dense_run_and_is_all_that_its_localizer_needs():
    cache = MemoryCache()
    task = make_task()
    found = find_region(task, settings(localizer="path_integral"), context=RunContext(cache))
    assert {key.split("-")[0] for key in cache.kept} == {"dense", "path"}
    assert found.passes["localize"].forward_backward == 0
    again = fine_tune_task(task, FAST, seed=0, path=True, context=RunContext(cache))
    assert cache.hits == ["dense", "path"]
    assert again.path is not None
    assert set(again.path) == set(task.parameters)
    plain = fine_tune_task(make_task(), FAST, seed=0, context=RunContext(cache))
    assert plain.path is None
    assert all(torch.equal(plain.tuned[n], again.tuned[n]) for n in plain.tuned)


def test_a_dense_run_that_gathered_no_path_is_run_again_for_one():
    cache = MemoryCache()
    task = make_task()
    plain = fine_tune_task(task, FAST, seed=0, context=RunContext(cache))
    gathered = fine_tune_task(task, FAST, seed=0, path=True, context=RunContext(cache))
    assert gathered.path is not None
    assert all(torch.equal(plain.tuned[n], gathered.tuned[n]) for n in plain.tuned)

"""The L1 penalty on the movement: exact zeros, and the lasso's solution."""

import pytest
import torch
from small_tasks import make_task
from torch import nn

from cl_graft.grafts.graft import snapshot
from cl_graft.runtime.seeding import seeded
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.fine_tuning import fine_tune
from cl_graft.training.fine_tuning_settings import FineTuning

WANTED = torch.tensor([0.8, -0.5, 0.05, -0.02, 0.0, 0.3])


def run(*, optimizer, l1, steps=400, lr=0.04, clip=0.0):
    """Minimise ½ ‖θ − base − wanted‖² + l1·‖θ − base‖₁, whose solution is soft thresholding."""
    with seeded(0, "lasso"):
        model = nn.Linear(6, 1, bias=False)
    base = snapshot(dict(model.named_parameters()))
    target = base["weight"] + WANTED

    settings = FineTuning(
        steps=steps, lr=lr, optimizer=optimizer, l1=l1, weight_decay=0, clip=clip, evaluations=0
    )
    found = fine_tune(
        model,
        dict(model.named_parameters()),
        loss=lambda step: 0.5 * (model.weight - target).square().sum(),
        settings=settings,
        seed=0,
        anchor=base,
    )
    return found.tensors["weight"], base["weight"]


@pytest.mark.parametrize(
    ("optimizer", "lr", "clip", "l1"),
    [
        *(("sgd", 0.04, 0.0, 0.1), ("adamw", 0.04, 0.0, 0.1)),
        *(("sgd", 0.4, 0.05, 0.1), ("adamw", 0.04, 0.05, 0.1)),
        *(("sgd", 0.04, 0.0, 0.0), ("adamw", 0.04, 0.0, 0.0)),
    ],
)
def test_movement_ends_on_the_soft_threshold_of_what_the_loss_wants(optimizer, lr, clip, l1):
    found, base = run(optimizer=optimizer, l1=l1, lr=lr, clip=clip)
    expected = WANTED.sign() * (WANTED.abs() - l1).clamp(min=0)
    torch.testing.assert_close((found - base)[0], expected, atol=5e-3, rtol=0)
    assert torch.equal(found[0, 2:5], base[0, 2:5]) == bool(l1)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_stronger_penalty_leaves_more_weights_of_a_task_at_the_base_and_spares_the_head(
    optimizer,
):
    still = []
    for l1 in (0.0, 1e-2, 1e-1):
        task = make_task()
        plan = FineTuning(steps=15, lr=0.05, optimizer=optimizer, l1=l1, evaluations=0)
        dense = fine_tune_task(task, plan, seed=0)
        same = sum(int((dense.tuned[n] == p).sum()) for n, p in task.parameters.items())
        still.append(same)
        assert not torch.equal(dense.head["head.weight"], task.head["head.weight"])
    assert still[0] < still[1] < still[2]

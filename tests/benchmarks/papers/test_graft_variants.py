"""Weights and checkpoints that the papers measure beside a graft leave nothing behind."""

import pytest
import torch
from localization.planted import planted_inputs
from papers.graft_variants import (
    interpolated,
    lottery_ticket,
    mixed_evaluation,
    sweep_densities,
    wise_curve,
)
from papers.trajectory import walk_dense_run
from small_tasks import make_task, moved_model

from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.region import Region
from cl_graft.localization import localize
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.fine_tuning_settings import FineTuning


@pytest.mark.parametrize("inside", [False, True])
def test_a_wise_curve_begins_at_the_base_and_ends_at_the_tuned_or_grafted_model(inside):
    inputs, planted = planted_inputs()
    region = planted if inside else None
    before = snapshot(inputs.parameters)

    def measure():
        return snapshot(inputs.parameters)

    curve = wise_curve(
        inputs.model, inputs.tuned, alphas=(0.0, 0.25, 1.0), measure=measure, region=region
    )
    masks = planted.masks()
    for alpha, weights in curve:
        for name, value in weights.items():
            there = before[name] + alpha * (inputs.tuned[name] - before[name])
            expected = torch.where(masks[name], there, before[name]) if inside else there
            torch.testing.assert_close(value, expected)
    assert all(torch.equal(curve[0][1][name], before[name]) for name in before)
    if not inside:
        assert all(torch.equal(curve[2][1][name], inputs.tuned[name]) for name in before)
    assert all(torch.equal(inputs.parameters[name], before[name]) for name in before)
    with pytest.raises(RuntimeError), interpolated(inputs.model, inputs.tuned, alpha=0.5):
        raise RuntimeError
    assert all(torch.equal(inputs.parameters[name], before[name]) for name in before)


def test_a_sweep_measures_the_grafts_of_nested_regions():
    inputs, _ = planted_inputs()
    ranking = localize(inputs, "movement", k=5)
    found = sweep_densities(
        inputs.model, inputs.tuned, ranking, sizes=(1, 12, 483), measure=inputs.dev_score
    )
    for size, score in found:
        with grafted(inputs.model, gather(inputs.tuned, ranking.top(size))):
            assert inputs.dev_score() == score
    assert found[-1][1] == 1.0
    left = Region.full(inputs.layout) - ranking.top(12)
    passed_over = sweep_densities(
        inputs.model, inputs.tuned, ranking, sizes=(12,), measure=inputs.dev_score, without=left
    )
    assert passed_over == [found[1]]


def test_a_lottery_ticket_is_tuned_inside_and_zero_outside():
    inputs, planted = planted_inputs()
    before, masks = snapshot(inputs.parameters), planted.masks()
    with lottery_ticket(inputs.model, inputs.tuned, planted):
        for name, value in inputs.parameters.items():
            assert torch.equal(value[masks[name]], inputs.tuned[name][masks[name]])
            assert not value[~masks[name]].any()
    assert all(torch.equal(inputs.parameters[name], before[name]) for name in before)


def test_at_evaluation_weights_are_the_bases_or_their_own():
    _, parameters, base = moved_model()
    before = snapshot(parameters)
    with mixed_evaluation(parameters, base, p=0.3, seed=0):
        now = parameters["weight"].detach().clone()
        fallen = now == base["weight"]
        assert torch.equal(now[~fallen], before["weight"][~fallen])
        assert float(fallen.float().mean()) == pytest.approx(0.3, abs=0.06)
    with mixed_evaluation(parameters, base, p=0.3, seed=0):
        assert torch.equal(now, parameters["weight"])
    with mixed_evaluation(parameters, base, p=0.3, seed=1):
        assert not torch.equal(now, parameters["weight"])
    assert all(torch.equal(before[name], parameters[name]) for name in before)


PLAN = FineTuning(steps=9, lr=0.3, evaluations=3)


def test_looking_in_along_a_run_changes_no_bit_of_it():
    plain = fine_tune_task(make_task(), PLAN, seed=0)
    task, seen = make_task(), {}

    def visit(step):
        assert not task.model.training
        seen[step] = snapshot(task.parameters)

    watched = walk_dense_run(task, PLAN, seed=0, at=(3, 9), visit=visit)
    assert list(seen) == [3, 9]
    assert all(torch.equal(plain.tuned[n], watched.tuned[n]) for n in plain.tuned)
    assert any(not torch.equal(seen[3][n], seen[9][n]) for n in seen[3])

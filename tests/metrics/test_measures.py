"""Measures of regions and runs against what they say they are."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from localization.planted import planted_inputs
from papers.bound import generalization_bound, variance_bound
from papers.trajectory import along, self_labelled
from small_tasks import make_task

from cl_graft.grafts.anatomy import anatomy
from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.interpolation import interpolated, wise_curve
from cl_graft.grafts.lottery_ticket import lottery_ticket
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization import localize
from cl_graft.localization.density_sweep import sparsity_sweep
from cl_graft.metrics import agreement, top_probability_histogram
from cl_graft.metrics.relative_gain import relative_gain
from cl_graft.metrics.stability import stability, without_a_share
from cl_graft.metrics.statistics import paired_t_test, spearman
from cl_graft.runtime.seeding import generator
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.fine_tuning import FineTuning


def test_relative_gain_is_0_at_the_base_and_1_at_the_full_model():
    assert relative_gain(0.5, base=0.5, full=0.9) == 0
    assert relative_gain(0.9, base=0.5, full=0.9) == 1
    assert relative_gain(0.8, base=0.5, full=0.9) == pytest.approx(0.75)
    assert relative_gain(0.8, base=0.9, full=0.9) is None


def test_agreement_is_the_share_of_equal_predictions():
    first = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]])
    second = torch.tensor([[3.0, 7.0], [1.0, 2.0], [4.0, 0.0]])
    assert agreement(first, second) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="one shape"):
        agreement(first, second[:2])


def test_the_histogram_counts_every_row_by_its_top_probability():
    probabilities = torch.tensor([[0.5, 0.5], [0.96, 0.04], [0.0, 1.0], [0.39, 0.61]])
    assert top_probability_histogram(probabilities, bins=10).tolist() == [0] * 5 + [1, 1, 0, 0, 2]
    with pytest.raises(ValueError, match="without softmax"):
        top_probability_histogram(3 * probabilities)


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
    found = sparsity_sweep(
        inputs.model, inputs.tuned, ranking, sizes=(1, 12, 483), measure=inputs.dev_score
    )
    for size, score in found:
        with grafted(inputs.model, gather(inputs.tuned, ranking.top(size))):
            assert inputs.dev_score() == score
    assert found[-1][1] == 1.0
    left = Region.full(inputs.layout) - ranking.top(12)
    passed_over = sparsity_sweep(
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


def test_anatomy_counts_every_coordinate_once_by_layer_and_kind():
    layout = Layout(
        ("enc.layer.0.a.weight", "enc.layer.0.a.bias", "enc.layer.1.a.weight", "pooler.weight"),
        ((2, 3), (3,), (2, 3), (4,)),
    )
    found = anatomy(Region.of(layout, [0, 5, 6, 9, 10, 18]))
    assert found.layers == (-1, 0, 1)
    assert found.kinds == ("a.weight", "a.bias", "pooler.weight")
    assert found.counts.tolist() == [[0, 0, 1], [2, 1, 0], [2, 0, 0]]
    assert found.sizes.sum() == layout.total
    assert found.by_layer.tolist() == pytest.approx([1 / 6, 3 / 6, 2 / 6])
    assert float(found.by_kind.sum()) == pytest.approx(1)
    assert found.density[1].tolist()[:2] == pytest.approx([2 / 6, 1 / 3])


def test_the_bound_is_that_of_the_theorems():
    """Theorem D.2 and D.4 written out again, at the paper's size: s = 5,000 and bf16 values."""
    s, q, n, delta = 5_000, 2**16, 8_192, 0.05
    regions = s * math.log(85_054_464)
    numerator = s * math.log(q) + regions + math.log(1 / delta)
    mine = variance_bound(size=s, values=q, rows=n, delta=delta, log_regions=regions)
    assert mine == pytest.approx(2 * (numerator / n) ** 0.5)
    graft = variance_bound(
        size=s, values=q, rows=n, delta=delta, log_regions=regions, retrained=False
    )
    assert graft == pytest.approx(2 * ((numerator + math.log(2)) / n) ** 0.5)
    assert generalization_bound(mine, bias=0.02, quantization=0.01, fit=0.03) == pytest.approx(
        mine + 0.02 + 0.04 + 0.03
    )
    with pytest.raises(ValueError, match="delta"):
        variance_bound(size=1, values=2, rows=3, delta=1.5)


def test_the_bound_holds_for_all_models_of_a_region_at_once_as_often_as_it_says():
    """All q^s models of a class with losses of 0 or 1, drawn again and again."""
    s, q, n, delta = 3, 4, 40, 0.1
    draw = generator(0, "bound")
    models = len(list(product(range(q), repeat=s)))
    true = torch.rand(models, generator=draw)
    bound = variance_bound(size=s, values=q, rows=n, delta=delta)
    failed = 0
    for _ in range(200):
        losses = torch.rand(models, n, generator=draw) < true[:, None]
        failed += bool(2 * (losses.float().mean(1) - true).abs().max() > bound)
    assert failed <= delta * 200


def test_the_paired_test_looks_at_differences_alone():
    first, second = [0.8, 0.7, 0.9, 0.85], [0.75, 0.66, 0.84, 0.82]
    t, p = paired_t_test(first, second)
    differences = torch.tensor(first).double() - torch.tensor(second).double()
    assert t == pytest.approx(float(differences.mean() / (differences.std() / 2)), rel=1e-5)
    assert 0 < p < 0.05
    shifted = paired_t_test([a + 0.1 * i for i, a in enumerate(first)],
                            [b + 0.1 * i for i, b in enumerate(second)])  # fmt: skip
    assert shifted == pytest.approx((t, p))


def test_rank_correlation_knows_ties_and_ignores_scale():
    x = [1.0, 2.0, 3.0, 4.0, 5.0]
    # Of 120 orders only this one and its reverse are as far from chance.
    assert spearman(x, [math.exp(v) for v in x]) == pytest.approx((1.0, 2 / 120), abs=5e-3)
    assert spearman(x, x[::-1])[0] == pytest.approx(-1.0)
    # 1 − 6·Σd²/(n(n² − 1)) with Σd² = 2; of 24 orders three more like it, both ends and reverses.
    rho, p = spearman([1, 2, 3, 4], [1, 3, 2, 4])
    assert rho == pytest.approx(0.8)
    assert p == pytest.approx(8 / 24, abs=0.02)
    assert spearman([1, 2, 3], [5, 5, 5]) == (None, None)
    assert spearman([1, 2, 2, 3], [1, 2, 2, 3])[0] == pytest.approx(1.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
@settings(max_examples=30)
def test_stability_is_mean_and_sample_deviation(scores):
    found = stability(scores)
    assert found.mean == pytest.approx(sum(scores) / len(scores))
    expected = float(torch.tensor(scores).double().std()) if len(scores) > 1 else 0.0
    assert found.deviation == pytest.approx(expected, abs=1e-6)


def test_a_share_of_the_rows_is_left_out():
    rows = without_a_share(50, seed=3)
    assert len(rows) == len(set(rows)) == 45
    assert rows == sorted(rows) == without_a_share(50, seed=3) != without_a_share(50, seed=4)
    with pytest.raises(ValueError, match="share must be"):
        without_a_share(3, share=1.0, seed=0)


PLAN = FineTuning(steps=9, lr=0.3, evaluations=3)


def test_looking_in_along_a_run_changes_no_bit_of_it():
    plain = fine_tune_task(make_task(), PLAN, seed=0)
    task, seen = make_task(), {}

    def visit(step):
        assert not task.model.training
        seen[step] = snapshot(task.parameters)

    watched = along(task, PLAN, seed=0, at=(3, 9), visit=visit)
    assert list(seen) == [3, 9]
    assert all(torch.equal(plain.tuned[n], watched.tuned[n]) for n in plain.tuned)
    assert any(not torch.equal(seen[3][n], seen[9][n]) for n in seen[3])


def test_a_model_agrees_with_the_labels_it_gives():
    task = make_task()
    task.model.eval()
    own = self_labelled(task)
    assert own.dev_score() == 1.0
    assert own.train_score(rows=150, seed=0) == 1.0
    assert task.dev_score() < 1.0
    assert own.content != task.content
    inputs, labels = own.train.batch([0, 5])
    assert torch.equal(inputs, task.train.batch([0, 5])[0])
    assert labels.dtype == torch.int64

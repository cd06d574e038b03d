"""Measures of the papers are what they say they are, and are summed up over cells."""

import math

import pytest
import torch
from papers.answers import Answers
from papers.bound import generalization_bound, variance_bound
from papers.measurements import Measurement, summarize, table
from papers.paper_metrics import relative_gain, top_probability_histogram


def test_relative_gain_is_0_at_the_base_and_1_at_the_full_model():
    assert relative_gain(0.5, base=0.5, full=0.9) == 0
    assert relative_gain(0.9, base=0.5, full=0.9) == 1
    assert relative_gain(0.8, base=0.5, full=0.9) == pytest.approx(0.75)
    assert relative_gain(0.8, base=0.9, full=0.9) is None


def test_the_histogram_counts_every_row_by_its_top_probability():
    probabilities = torch.tensor([[0.5, 0.5], [0.96, 0.04], [0.0, 1.0], [0.39, 0.61]])
    assert top_probability_histogram(probabilities, bins=10).tolist() == [0] * 5 + [1, 1, 0, 0, 2]
    with pytest.raises(ValueError, match="without softmax"):
        top_probability_histogram(3 * probabilities)


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


def test_a_summary_is_the_mean_over_cells_and_leaves_out_what_is_no_number():
    cells = [
        [Measurement("a", "m", "score", 0.4, 1.0), Measurement("a", "m", "gap", float("nan"))],
        [Measurement("a", "m", "score", 0.6, 1.0)],
    ]
    (row,) = summarize(cells)
    assert (row.mean, row.seeds, row.x) == (0.5, 2, 1.0)
    text = table([row], axis="density")
    assert text.splitlines()[0] == "| task | method | density | score |"
    assert text.splitlines()[2] == "| a | m | 1 | 0.500 ± 0.141 |"
    places = [Measurement("a", "m", "score", 0.5, x) for x in (106 / 10_646_784, 20_000.0)]
    lines = table(summarize([places]), axis="density").splitlines()[2:]
    assert [line.split(" | ")[2] for line in lines] == ["9.96e-06", "20000"]


def test_the_best_constant_answer_is_that_of_the_metric():
    targets = torch.tensor([0, 0, 1, 0])
    logits = torch.zeros(4, 2)
    assert Answers(logits, targets, "accuracy").best_constant == 0.75
    assert Answers(logits, targets, "matthews").best_constant == 0.0
    assert Answers(logits, targets, "f1").best_constant == pytest.approx(2 * 1 / (4 + 1))

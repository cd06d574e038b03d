"""Measurements are summed up over cells, and answers know their best constant."""

import pytest
import torch
from papers.answers import Answers
from papers.measurements import Measurement, summarize, table


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

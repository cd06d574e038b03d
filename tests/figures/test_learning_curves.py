"""Figures of how a task is learned: honest axes, and every line can be hidden with its strategy."""

import pytest

from cl_graft.lab.figures.learning_curves import Learning, learning_curves
from cl_graft.metrics.figure_style import svg

GRAFTING = Learning(
    loss=((1, 0.7), (2, 0.5)),
    dev=((2, 0.8),),
    dense_loss=((1, 0.6), (2, 0.4)),
    dense_dev=((2, 0.9),),
)


def test_losses_begin_at_zero_and_dev_scores_are_points():
    left, right = learning_curves({"a": GRAFTING}, title="t", measure="accuracy").axes
    assert left.get_ylim()[0] == 0
    assert [line.get_ydata()[0] for line in right.lines] == pytest.approx([80, 90])
    assert right.axison
    assert (
        not learning_curves({"a": Learning(loss=GRAFTING.loss)}, title="t", measure="f1")
        .axes[1]
        .axison
    )
    assert all(tick == int(tick) for tick in left.get_xticks())


def test_lines_and_names_carry_the_number_of_their_strategy():
    found = {"a": GRAFTING, "bare": Learning(), "no dev": Learning(loss=((1, 0.3),))}
    figure = learning_curves(found, title="t", measure="accuracy")
    text = svg(figure)
    for part in ("part0-mark0", "part0-mark1", "part0-mark2", "part0-mark3", "part0-name",
                 "part2-mark0", "part2-key", "part2-name"):  # fmt: skip
        assert text.count(f'id="{part}"') == 1
    assert "part1-" not in text
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "no dev"]

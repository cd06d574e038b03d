"""The diagram of ranks names every method and joins those that cannot be told apart."""

from __future__ import annotations

from cl_graft.lab.figures.rank_diagram import cliques, rank_diagram


def test_runs_within_the_difference_are_joined_and_parts_of_longer_ones_are_not():
    assert cliques([1.0, 1.5, 2.2, 3.9, 4.0], 1.0) == [(0, 1), (1, 2), (3, 4)]
    assert cliques([1.0, 1.2, 1.4], 1.0) == [(0, 2)]
    assert cliques([1.0, 3.0], 1.0) == []


def test_every_method_has_a_line_best_on_top():
    ranks = {"naive": 2.5, "grafting": 1.5, "joint": 2.0}
    figure = rank_diagram(ranks, 0.6)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["grafting", "joint", "naive"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert "0.60" in figure.get_suptitle()
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in marks] == [1.5, 2.0, 2.5]
    bars = [[*line.get_ydata()] for line in axes.lines if line not in marks]
    assert bars == [[0, 1], [1, 2]]

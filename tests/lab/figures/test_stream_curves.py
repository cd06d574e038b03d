"""Curves along the stream can be told apart, also where they coincide, on an honest axis."""

from cl_graft.lab.figures.stream_curves import Curve, stream_curves


def drawn(**curves):
    (axes,) = stream_curves(
        {name: Curve((values,)) for name, values in curves.items()},
        ["a", "b"],
        title="Some",
        measure="accuracy (%)",
    ).axes
    return axes


def test_the_first_of_equal_curves_lies_on_top_and_the_others_show_around_it():
    lines = drawn(**dict.fromkeys(("grafting", "independent", "lora"), (0.9, 0.8))).get_lines()
    orders = [line.get_zorder() for line in lines]
    assert orders == sorted(orders, reverse=True)
    sizes = [line.get_markersize() for line in lines]
    assert sizes == sorted(set(sizes))
    assert [line.get_markerfacecolor() == "none" for line in lines] == [False, True, True]
    assert len({line.get_linestyle() for line in lines}) == 3


def test_a_cut_axis_says_where_it_begins_and_nothing_is_blown_up():
    assert ", axis from " in drawn(naive=(0.9, 0.6)).get_ylabel()
    flat = drawn(grafting=(0.0, 0.0))
    assert "axis from" not in flat.get_ylabel()
    low, high = flat.get_ylim()
    assert high - low == 1
    assert low < 0 < high

"""Counts of a region's coordinates by layer and by kind of parameter."""

import pytest

from cl_graft.grafts.region import Layout, Region, anatomy


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

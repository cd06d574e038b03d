"""Values of a stream are kept by row, and equal ones of a column once."""

from __future__ import annotations

import json
import tracemalloc

from cl_graft.strategies.stream_scores import StreamMatrix


def filled(size: int, *, forgets: bool) -> StreamMatrix[float]:
    cells: StreamMatrix[float] = StreamMatrix()
    for i in range(-1, size):
        for j in range(max(i, 0) + 1):
            cells.set(i, j, 1 / (2 + j + (i if forgets else 0)))
    return cells


def test_a_matrix_has_none_where_nothing_was_measured():
    cells: StreamMatrix[str] = StreamMatrix()
    cells.set(1, 1, "b")
    cells.set(0, 0, "a")
    cells.set(-1, 2, "before")
    assert cells.matrix([0, 1]) == [["a", None], [None, "b"]]
    assert cells.matrix([1, 0]) == [[None, "a"], ["b", None]]
    assert cells.get(-1, 2) == "before"
    assert cells.get(-1, 3) is None
    assert (1, 1) in cells
    assert (1, 0) not in cells


def test_a_cell_that_is_measured_again_has_the_new_value():
    cells = filled(3, forgets=False)
    cells.set(1, 0, 0.125)
    assert cells.get(1, 0) == 0.125
    assert cells.get(0, 0) == cells.get(2, 0) == 0.5


def test_rows_survive_json_and_are_no_views():
    cells, again = filled(4, forgets=True), StreamMatrix()
    rows = [*cells.rows()]
    cells.set(3, 0, 0.0)
    again.load_(json.loads(json.dumps(rows)))
    assert again.matrix(range(4)) == filled(4, forgets=True).matrix(range(4))


def test_a_cell_of_a_stream_that_forgets_nothing_takes_few_bytes():
    size = 200
    tracemalloc.start()
    try:
        cells = filled(size, forgets=False)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cells.get(size - 1, 0) is cells.get(0, 0)
    assert held < 16 * size * size / 2

"""results.json is the whole of a result; summaries are means and deviations of it."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_cases import slow
from small_results import small_result

from cl_graft.errors import BankError, InputError
from cl_graft.lab.results.run_results import (
    RunResult,
    pack_matrix,
    read_result,
    unpack_matrix,
    write_result,
)
from cl_graft.settings.run_files import RESULTS


@pytest.fixture
def result() -> RunResult:
    return small_result()


def test_what_was_written_is_read_back(tmp_path, result):
    write_result(result, tmp_path)
    assert read_result(tmp_path) == result
    stored = json.loads((tmp_path / RESULTS).read_text())
    assert {name: stored[name] for name in asdict(result)} == asdict(result)


def forget_free(tasks: int) -> list[list[float | None]]:
    """R of a strategy that forgets nothing."""
    return [[0.5 + j / 1e4 if j <= i else None for j in range(tasks)] for i in range(tasks)]


def test_results_that_forget_nothing_do_not_grow_with_the_square_of_the_tasks(tmp_path, result):
    sizes = []
    for tasks in (100, 200):
        names = [f"task{number}" for number in range(tasks)]
        R = forget_free(tasks)
        metrics = dict.fromkeys(names, "accuracy")
        whole = replace(result, tasks=names, metrics=metrics, R=R, ece=R, routed=None, overlap=None)
        write_result(whole, tmp_path)
        assert read_result(tmp_path) == whole
        sizes.append((tmp_path / RESULTS).stat().st_size)
    assert sizes[1] < 2.1 * sizes[0]


@given(
    st.integers(0, 30).flatmap(
        lambda n: st.lists(
            st.lists(st.none() | st.floats(0, 1), min_size=n, max_size=n), min_size=0, max_size=40
        )
    )
)
def test_every_matrix_comes_back(matrix):
    assert unpack_matrix(json.loads(json.dumps(pack_matrix(matrix)))) == matrix


@pytest.mark.parametrize("step", [31, *slow(1)])
def test_a_bit_flip_of_results_is_noticed(tmp_path, result, step):
    write_result(result, tmp_path)
    path = tmp_path / RESULTS
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), step):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(changed)
        with pytest.raises((BankError, InputError)):
            read_result(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{}", '{"strategy": "naive"}', "no json"])
def test_a_file_that_is_no_result_is_refused(tmp_path, text):
    (tmp_path / RESULTS).write_text(text)
    with pytest.raises(InputError, match="not the results of a run"):
        read_result(tmp_path)

"""Lines about the data of several runs say which seeds they hold for."""

from __future__ import annotations

from small_results import small_result

from cl_graft.lab.commands.run_tables import list_data_notes


def with_cut(seed: int, cut: int):
    counts = {"train": 8, "valid": 2, "test": 4}
    report = {"rows": counts, "cut": {"train": cut, "valid": 0, "test": 0}, "max_length": 16}
    data = {"topic": {**report, "source": {"notes": ["noted"]}}}
    return small_result(seed=seed, data=data)


def test_what_holds_for_some_seeds_names_them():
    assert list_data_notes([with_cut(0, 3), with_cut(1, 3)]) == [
        "data of topic: 3 of 14 rows cut at 16 tokens; noted"
    ]
    assert list_data_notes([with_cut(0, 3), with_cut(1, 5), with_cut(2, 3)]) == [
        "data of topic: 3 of 14 rows cut at 16 tokens; noted (seed 0, 2)",
        "data of topic: 5 of 14 rows cut at 16 tokens; noted (seed 1)",
    ]

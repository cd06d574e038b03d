"""What is shown of a bank grows with its tasks, not with their square."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from stored_banks import bank_of

from cl_graft.banks.inspect import inspect_bank
from cl_graft.grafts.bank import GraftBank
from cl_graft.storage import save_bank


def bank_of_many(tasks: int) -> GraftBank:
    bank = bank_of(mode="isolated", tasks=1)
    (one,) = bank.entries
    entries = (replace(one, task=f"task{number}", label=number) for number in range(tasks))
    return replace(bank, entries=tuple(entries))


@pytest.mark.parametrize(
    ("tasks", "overlap", "rows"), [(20, None, 20), (21, None, 0), (21, True, 21)]
)
def test_how_much_tasks_overlap_is_shown_of_up_to_20_or_where_it_is_asked_for(
    tmp_path, tasks, overlap, rows
):
    save_bank(bank_of_many(tasks), tmp_path)
    found = inspect_bank(tmp_path, overlap=overlap)
    assert [len(found.entries), len(found.overlap)] == [tasks, rows]
    assert all(len(row) == rows for row in found.overlap)
    assert not inspect_bank(tmp_path, overlap=False).overlap


def test_the_description_of_a_bank_does_not_grow_with_the_square_of_its_tasks(tmp_path):
    sizes = []
    for tasks in (25, 50):
        save_bank(bank_of_many(tasks), tmp_path / str(tasks))
        found = inspect_bank(tmp_path / str(tasks))
        sizes.append(len(json.dumps([asdict(entry) for entry in found.entries])))
    assert sizes[1] < 2.1 * sizes[0]

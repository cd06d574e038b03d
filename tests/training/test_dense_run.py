"""The dense run of a task, and the rows that it learns from."""

import torch
from small_tasks import FAST, make_task

from cl_graft.training.dense_run import fine_tune_task


def test_the_dense_run_moves_the_graftable_parameters_and_the_head():
    task = make_task()
    dense = fine_tune_task(task, FAST, seed=0)
    assert all(not torch.equal(dense.tuned[n], p) for n, p in task.parameters.items())
    assert all(not torch.equal(dense.head[n], p) for n, p in task.head.items())
    assert dense.dev is not None
    assert 0 <= dense.dev <= 1


def test_a_split_holds_every_row_once():
    task = make_task()
    rest, part = task.train.split(0.05, seed=3)
    assert len(part) == 8
    assert sorted([*rest.rows, *part.rows]) == list(range(150))

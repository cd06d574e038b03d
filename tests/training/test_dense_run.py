"""The dense run of a task, and the rows that it learns from."""

from dataclasses import replace

import torch
from small_tasks import FAST, MemoryCache, make_task

from cl_graft.runtime.run_context import RunContext
from cl_graft.training.dense_run import fine_tune_task


def test_the_dense_run_moves_the_graftable_parameters_and_the_head():
    task = make_task()
    dense = fine_tune_task(task, FAST, seed=0)
    assert all(not torch.equal(dense.tuned[n], p) for n, p in task.parameters.items())
    assert all(not torch.equal(dense.head[n], p) for n, p in task.head.items())
    assert dense.dev is not None
    assert 0 <= dense.dev <= 1


def test_the_cache_tells_decays_and_warm_ups_apart_and_knows_the_defaults():
    cache = MemoryCache()
    found = [
        fine_tune_task(make_task(), replace(FAST, **own), seed=0, context=RunContext(cache)).tuned
        for own in ({}, {"lr_decay": "linear"}, {"lr_decay": "linear", "warm_up": 0.5})
    ]
    assert not cache.hits
    for first, second in ((0, 1), (1, 2)):
        assert any(not torch.equal(found[first][n], found[second][n]) for n in found[0])
    again = fine_tune_task(
        make_task(),
        replace(FAST, lr_decay="constant", warm_up=0.0),
        seed=0,
        context=RunContext(cache),
    )
    assert cache.hits == ["dense"]
    assert all(torch.equal(again.tuned[n], tensor) for n, tensor in found[0].items())

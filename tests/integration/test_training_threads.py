"""Threads of one process that train at the same time: they wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from configs import config_with
from tiny_runs import QUICK, file_hashes

from cl_graft.lab.experiments.folders import run_folder
from cl_graft.lab.experiments.run import run
from cl_graft.runtime.seeding import seeded


def _learn(out: Path, model: Path, seed: int) -> dict[str, str]:
    """Learn a task, and return the hash of every file of its entries."""
    few = {"model": str(model), "tasks": ["scope"], "shots": 8, "max_test": 4, "steps": 8}
    run(config_with({**QUICK, **few}), strategy="grafting", seed=seed, out=out / str(seed))
    return file_hashes(run_folder(out / str(seed), "grafting", seed) / "bank" / "entries")


def test_two_runs_in_two_threads_learn_what_each_learns_alone(
    tiny_bert: Path, tmp_path: Path
) -> None:
    alone = [_learn(tmp_path / "alone", tiny_bert, seed) for seed in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(_learn, tmp_path / "both", tiny_bert, seed) for seed in (0, 1)]
        assert [one.result() for one in both] == alone


def test_draws_of_one_thread_wait_for_those_of_another() -> None:
    with seeded(1):
        expected = torch.rand(3)
    inside, entered, leave = threading.Event(), threading.Event(), threading.Event()

    def draw() -> None:
        inside.wait()
        with seeded(2):
            entered.set()
            leave.wait(5)

    thread = threading.Thread(target=draw)
    thread.start()
    with seeded(1):
        inside.set()
        entered.wait(0.1)
        assert torch.equal(torch.rand(3), expected)
    leave.set()
    thread.join()

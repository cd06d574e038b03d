"""Threads of one process that train at the same time: they wait, or are refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from avalanche.core import SupervisedPlugin
from configs import config_with
from tiny_runs import QUICK, file_hashes
from tiny_streams import learner, naive_strategy, vector_stream
from torch import nn

from cl_graft.lab.experiments.folders import run_folder
from cl_graft.lab.experiments.run import run
from cl_graft.runtime.seeding import seeded
from cl_graft.strategies.loop.steps_and_rates import SeededLoop


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


class _Meet(SupervisedPlugin):
    """Lets every epoch and step begin when the other thread's does, as long as that goes on.

    Without the first, a thread that still searches its region would not see that the other was
    refused meanwhile, and would train on alone.
    """

    def __init__(self, steps: threading.Barrier) -> None:
        super().__init__()
        self.steps = steps

    def before_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        with suppress(threading.BrokenBarrierError):
            self.steps.wait(60)

    def before_forward(self, strategy: Any, **kwargs: Any) -> None:
        self.before_training_epoch(strategy)


def _graft(model: nn.Module, meet: _Meet) -> Callable[[], object]:
    learning = learner(model, vector_stream(labels=[0]), plugins=[meet])
    return lambda: learning.strategy.train(learning.benchmark.train_stream[0])


def _naive(model: nn.Module, meet: _Meet) -> Callable[[], object]:
    strategy = naive_strategy(model, plugins=[SeededLoop(0), meet])
    return lambda: strategy.train(vector_stream(labels=[0]).train_stream[0])


@pytest.mark.parametrize("make", [_graft, _naive])
def test_two_loops_in_two_threads_are_refused_both(make: Callable[..., Any]) -> None:
    steps = threading.Barrier(2)
    models = [nn.Sequential(nn.Linear(12, 8), nn.Dropout(0.5), nn.Linear(8, 2)) for _ in range(2)]
    trainings = [make(model, _Meet(steps)) for model in models]

    def train(number: int) -> str:
        try:
            trainings[number]()
        except RuntimeError as error:
            return str(error)
        finally:
            steps.abort()
        return "no error"

    with ThreadPoolExecutor(2) as pool:
        errors = list(pool.map(train, range(2)))
    assert ["another thread of this process trains" in error for error in errors] == [True, True]
    trainings[0]()  # alone it is learned

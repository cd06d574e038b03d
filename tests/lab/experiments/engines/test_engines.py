"""Runs on other processes end on the bits of runs here, whatever happens to their workers."""

import json
import os
import signal
import socket
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from configs import config_with
from interrupted import outcome_of
from slow_cases import slow
from tiny_runs import cl_graft

from cl_graft.errors import InputError
from cl_graft.lab.experiments.comparison.compare import Job, Outcome, compare
from cl_graft.lab.experiments.engines import (
    ATTEMPTS,
    PoolEngine,
    WorkerDied,
    check_resources,
    ray_pool,
    slurm_pool,
    work,
)
from cl_graft.runtime.progress import Step
from cl_graft.runtime.signals import Stop, Stopped
from cl_graft.settings.run_files import CONFIG
from cl_graft.storage import OWNER


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Compute here as the workers do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def settings(tiny_bert):
    return {
        "tasks": ["scope", "topic"],
        "model": str(tiny_bert),
        "strategies": ["naive", "lwf"],
        "shots": 8,
        "steps": 6,
        "batch_size": 8,
        "max_length": 24,
        "max_test": 20,
        "evaluations": 1,
        "device": "cpu",
        "checkpoint_steps": 1,
    }


@pytest.fixture(scope="module")
def tuned(settings):
    """Two strategies with two seeds, of which one has values to choose."""
    few = {"steps": 2, "checkpoint_steps": None}
    return config_with(settings | few | {"tune": True, "seeds": [0, 1]})


@pytest.fixture(scope="module")
def tuned_here(tuned, tmp_path_factory):
    return compare(tuned, out=tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def long(settings):
    """One run that takes long enough to be killed in its middle."""
    return config_with(settings | {"strategies": ["naive"], "steps": 60})


@pytest.fixture(scope="module")
def long_here(long, tmp_path_factory):
    out = tmp_path_factory.mktemp("here")
    compare(long, out=out)
    return outcome_of(out / "naive" / "seed0")


@pytest.fixture(scope="module")
def ray_workers():
    """A cluster here, of one worker: each imports the package, which takes longer than the runs."""
    with closing(ray_pool(workers=1)) as pool:
        yield pool


def local_jobs(folder: Path):
    return closing(slurm_pool(folder, cluster="local"))


@dataclass
class Done:
    """A future that is over: with an outcome, or with the death of its worker."""

    outcome: Outcome | WorkerDied | None

    def done(self) -> bool:
        return True

    def result(self) -> Outcome | None:
        if isinstance(self.outcome, WorkerDied):
            raise self.outcome
        return self.outcome

    def cancel(self) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)


@dataclass
class PoolHere:
    """A pool whose worker is this process; workers with some jobs die once, or whenever."""

    dies_once: set[str] = field(default_factory=set)
    dies: str = ""
    slots: int = 1

    def submit(self, job: Job, *, threads: int) -> Done:
        if job.name in self.dies_once or job.name == self.dies:
            self.dies_once.discard(job.name)
            return Done(WorkerDied("it was killed"))
        return Done(work(job, threads, Path.cwd()))

    def close(self) -> None:
        pass


def ends_as_here(there, here):
    """Tell whether the runs of a comparison have the outcomes of those of another."""
    runs = [Path(run.strategy) / f"seed{run.seed}" for run in here.runs]
    return len(there.runs) == len(runs) and all(
        outcome_of(there.out / folder) == outcome_of(here.out / folder) for folder in runs
    )


def test_a_comparison_on_workers_of_which_some_die_ends_on_the_bits_of_one_here(
    tuned, tuned_here, tmp_path
):
    pool, seen = PoolHere(dies_once={"naive, seed 1", "lwf, tuning"}), []
    there = compare(tuned, out=tmp_path, engine=PoolEngine(pool), progress=seen.append)
    assert there.failed == tuned_here.failed == ()
    assert ends_as_here(there, tuned_here)
    over = [step.job for step in seen if step.phase == "over"]
    assert sorted(over) == [
        *("lwf, seed 0", "lwf, seed 1", "lwf, tuning", "naive, seed 0", "naive, seed 1")
    ]
    assert over.index("lwf, tuning") < over.index("lwf, seed 0")


def test_a_run_whose_every_worker_dies_fails_and_the_others_go_on(tuned, tmp_path):
    naive = tuned.with_values({"comparison.strategies": ["naive"]})
    done = compare(naive, out=tmp_path, engine=PoolEngine(PoolHere(dies="naive, seed 0")))
    (failure,) = done.failed
    assert (failure.strategy, failure.seed) == ("naive", 0)
    assert failure.error == f"its worker died {ATTEMPTS} times, last: it was killed"
    assert [run.seed for run in done.runs] == [1]


@pytest.mark.slow
def test_values_that_cannot_be_chosen_fail_every_run_that_waits_for_them(settings, tmp_path):
    strategies = {"strategies": ["naive", "independent"]}
    config = config_with(settings | strategies | {"seeds": [0, 1], "tune": True, "lr": 1e18})
    here = compare(config, out=tmp_path / "here")
    there = compare(config, out=tmp_path / "there", engine=PoolEngine(PoolHere()))
    assert len(here.failed) == 4
    assert {vars(f)["error"] for f in there.failed} == {vars(f)["error"] for f in here.failed}


def wait_for_worker(folder: Path, *, number: int | None = None, after: int | None = None) -> int:
    """Return the process that works on a run, once it has a checkpoint and is not `after`.

    With `number` the run must count it as its process of that number, from 1.
    """
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if any((folder / "checkpoints").glob("*")):
            with suppress(FileNotFoundError):  # between two workers
                process = json.loads((folder / OWNER).read_text())["pid"]
                begun = json.loads((folder / CONFIG).read_text())["processes"]
                if process != after and number in (None, begun):
                    return process
        time.sleep(0.01)
    raise TimeoutError(f"nothing ran in {folder}")


@pytest.mark.slow
def test_a_comparison_on_ray_ends_on_the_bits_of_one_here(tuned, tuned_here, ray_workers, tmp_path):
    seen: list[Step] = []
    engine = PoolEngine(ray_workers)
    there = compare(tuned, out=tmp_path, engine=engine, progress=seen.append)
    assert there.failed == ()
    assert ends_as_here(there, tuned_here)
    over = [step.job for step in seen if step.phase == "over"]
    assert over.index("lwf, tuning") < over.index("lwf, seed 0")


def test_a_run_that_no_machine_of_a_cluster_can_hold_is_refused():
    node = {"Alive": True, "Resources": {"CPU": 1.0, "memory": 1e9}}
    nodes = [node, {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 99.0}}]
    check_resources(nodes, cpus=1, gpus=0)
    for needed in ({"cpus": 1, "gpus": 99}, {"cpus": 99, "gpus": 0}):
        with pytest.raises(InputError, match=r"no machine .*there are: 1 CPUs, 0 GPUs"):
            check_resources(nodes, **needed)


@pytest.mark.slow
def test_workers_that_are_killed_or_asked_to_stop_cost_only_what_came_since_their_checkpoint(
    long, long_here, tmp_path
):
    stop, run = Stop(), tmp_path / "naive" / "seed0"
    worked: list[int] = []

    def kill_one_and_stop_the_next() -> None:
        worked.append(wait_for_worker(run, number=1))
        os.kill(worked[0], signal.SIGKILL)
        worked.append(wait_for_worker(run, number=2, after=worked[0]))
        stop.asked = signal.SIGTERM

    thread = threading.Thread(target=kill_one_and_stop_the_next)
    thread.start()
    with local_jobs(tmp_path) as pool, pytest.raises(Stopped):
        compare(long, out=tmp_path, engine=PoolEngine(pool), stop=stop)
    thread.join()
    assert len(set(worked)) == 2
    assert any((run / "checkpoints").iterdir())
    assert not (run / "results.json").exists()
    assert not (tmp_path / "engine").exists()
    done = compare(long, out=tmp_path)
    assert done.failed == ()
    assert done.runs[0].processes == 3
    assert outcome_of(run) == long_here


@pytest.mark.slow
def test_a_worker_that_dies_on_another_host_is_replaced(long, long_here, ray_workers, tmp_path):
    run = tmp_path / "naive" / "seed0"
    owners: list[str] = []

    def work_elsewhere(job, threads, folder):  # in here, so that Ray sends it by value
        socket.gethostname = lambda: f"host{os.getpid()}"
        return work(job, threads, folder)

    def kill_one() -> None:
        first = wait_for_worker(run)
        owners.append(json.loads((run / OWNER).read_text())["host"])
        os.kill(first, signal.SIGKILL)
        wait_for_worker(run, after=first)
        owners.append(json.loads((run / OWNER).read_text())["host"])

    thread = threading.Thread(target=kill_one)
    thread.start()
    remote = ray_workers.ray.remote(num_cpus=1, max_retries=0)(work_elsewhere)
    done = compare(long, out=tmp_path, engine=PoolEngine(replace(ray_workers, remote=remote)))
    thread.join()
    assert done.failed == ()
    assert done.runs[0].processes == 2
    assert len({*owners, socket.gethostname()}) == 3
    assert outcome_of(run) == long_here


def test_a_parameter_that_submitit_does_not_know_is_named(tmp_path):
    with pytest.raises(InputError, match="slurm_partitoin"):
        slurm_pool(tmp_path, cluster="local", parameters={"slurm_partitoin": "gpu"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "rya"], "did you mean 'ray'?"),
        (["--workers", "2"], "not an option of the engine 'local'"),
        (["--engine", "slurm"], "no SLURM here"),
        (["--engine", "ray", "--engine-set", "a=1"], "--engine-set"),
        *slow(
            (["--engine", "ray", "--gpus-per-run", "99"], "no machine of the cluster"),
            (["--engine", "ray", "--address", "127.0.0.1:1"], "no Ray cluster answers"),
        ),
    ],
)
def test_the_command_line_refuses_what_an_engine_cannot_do(options, said, tiny_bert, tmp_path):
    told = cl_graft(
        *("compare", "--tasks", "scope", "--model", tiny_bert, "--out", tmp_path / "out"), *options
    )
    assert told.code == 2, told
    assert said in " ".join(told.err.split())
    assert not (tmp_path / "out").exists()

"""Steps a second beside other work: how long OpenMP's waiting threads spin.

    python benchmarks/performance/busy_machine.py

Each setting has a process of its own, which trains a region of a RoBERTa of random weights (the
step of ``speed.py``) on all cores. The processes take turns, round after round, once with the
machine to themselves and once beside single-threaded processes that keep the cores busy. Writes
``results/busy_machine.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "default of OpenMP": {},
    "GOMP_SPINCOUNT=0": {"GOMP_SPINCOUNT": "0"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
}
DEFAULT = next(iter(SETTINGS))
BUSY = "while True: pass"


def main() -> None:
    """Measure and write, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=("tiny", "base"), default="base")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="a turn of one process")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--beside", type=int, default=2, help="busy processes")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        take_turns(given.shape, given.threads)
        return
    stored = {
        "alone": measure(given, beside=0),
        "busy": measure(given, beside=given.beside),
        "beside": given.beside,
        "rounds": given.rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {given.threads} threads",
        "shape": f"RoBERTa {given.shape} with random weights, region step, 8 × 64 tokens, fp32",
    }
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "busy_machine.json").write_text(json.dumps(stored, indent=1) + "\n")
    page = render(stored)
    (given.results / "busy_machine.md").write_text(page)
    sys.stdout.write(page)


def take_turns(shape: str, threads: int) -> None:
    """Train for as many seconds as each line of the input says, and print steps a second."""
    import torch  # Before the package, which would limit the spinning by itself.
    from speed_training import SHAPES, VARIANTS

    torch.set_num_threads(threads)
    step = VARIANTS["region_step"](SHAPES[shape], "sgd")
    step()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        steps, started = 0, time.perf_counter()
        while (took := time.perf_counter() - started) < float(line):
            step()
            steps += 1
        sys.stdout.write(f"{steps / took}\n")
        sys.stdout.flush()


def measure(given: argparse.Namespace, *, beside: int) -> dict[str, list[float]]:
    """Return steps a second by setting, one number a round."""
    found: dict[str, list[float]] = {name: [] for name in SETTINGS}
    with ExitStack() as stack:
        children = {name: stack.enter_context(_child(name, given)) for name in SETTINGS}
        for _ in range(beside):
            stack.enter_context(_process(sys.executable, "-c", BUSY))
        for number in range(given.rounds):
            names = list(SETTINGS) if number % 2 == 0 else list(reversed(SETTINGS))
            for name in names:
                children[name].stdin.write(f"{given.seconds}\n")
                children[name].stdin.flush()
                found[name].append(float(children[name].stdout.readline()))
    return found


@contextmanager
def _child(setting: str, given: argparse.Namespace) -> Iterator[Any]:
    own = {name for settings in SETTINGS.values() for name in settings}
    env = {name: value for name, value in os.environ.items() if name not in own}
    env |= {**SETTINGS[setting], "OMP_NUM_THREADS": str(given.threads)}
    words = ["--child", "--shape", given.shape, "--threads", str(given.threads)]
    with _process(sys.executable, "-W", "ignore", __file__, *words, env=env) as process:
        process.stdout.readline()
        yield process


@contextmanager
def _process(*words: str, env: Mapping[str, str] | None = None) -> Iterator[Any]:
    process = subprocess.Popen(
        words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def render(stored: Mapping[str, Any]) -> str:
    """Return the table in Markdown: medians, and the median ratio to OpenMP's default by round."""
    head = f"| setting | alone, steps/s | of default | beside {stored['beside']}, steps/s |"
    lines = [f"{head} of default |", "| --- | ---: | ---: | ---: | ---: |"]
    for name in SETTINGS:
        cells = []
        for place in ("alone", "busy"):
            rates, default = stored[place][name], stored[place][DEFAULT]
            ratio = statistics.median(a / b for a, b in zip(rates, default, strict=True))
            cells += [f"{statistics.median(rates):.2f}", f"{ratio:.2f}"]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    lines += ["", f"{stored['shape']}; {stored['rounds']} rounds; {stored['machine']}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

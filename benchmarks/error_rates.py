"""Error rates of the package's intervals and tests where there is nothing to find.

Every interval and every test of `cl_graft.metrics.statistics`,
of `cl_graft.lab.results.strategy_statistics` and of `papers.sam` is simulated under its null
hypothesis (`null_hypotheses.py`), and the share of simulations in which it is wrong is put beside
the rate that it states. Two more tables say what goes wrong where samples are not independent,
and what no interval of the package says. Results go with command, versions and machine to
``benchmarks/results/error_rates.json`` and ``.md``, which docs/reference/metrics.md shows.

    python benchmarks/error_rates.py
    python benchmarks/error_rates.py --trials 200 --results OUT   # does it run?
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from null_hypotheses import CHECKS, Rate, measure
from papers.paper_metrics import stability

from cl_graft.lab.results.run_results import machine
from cl_graft.settings.run_files import versions

RESULTS = Path(__file__).parent / "results"
TRIALS = 2_000
QUICK = {"mean_interval", "paired_t_test"}
"""Functions that are simulated ten times as often, as they take no time."""


def spread_ratio(*, trials: int = TRIALS, seed: int = 0) -> float:
    """Return the mean of the squared deviation of `stability` of three runs over the true one."""
    draw = np.random.default_rng(seed)
    scores = draw.normal(0.7, 0.1, (trials, 3)).tolist()
    return float(np.mean([stability(own).deviation ** 2 for own in scores])) / 0.1**2


def table(rates: Iterable[Rate]) -> str:
    """Return the rates as a Markdown table."""
    lines = [
        "| function | where nothing is to be found | stated at most | wrong in |",
        "| --- | --- | ---: | ---: |",
    ]
    lines += [
        f"| `{rate.function}` | {rate.null} | {rate.stated:.0%} "
        f"| {rate.wrong / rate.trials:.1%} ({rate.low:.1%} to {rate.high:.1%}) |"
        for rate in rates
    ]
    return "\n".join(lines).replace("%", " %") + "\n"


def page(stored: dict[str, Any], rates: Sequence[Rate]) -> str:
    """Return the tables with what they show."""
    part = {kind: table(r for r in rates if r.kind == kind) for kind in ("holds", "dependent")}
    return "\n".join(
        [
            f"Simulated {stored['trials']:,} times each, `mean_interval` and `paired_t_test` ten "
            "times as often; in parentheses the 95 % interval of the share (Wilson).\n",
            part["holds"],
            "The squared standard deviation of `stability` is on average "
            f"{stored['spread_ratio']:.2f} of the true one (3 runs).\n",
            "Samples that are not independent do harm. This is why the package averages over "
            "orders before it says how sure a mean is:\n",
            part["dependent"],
            f"`{stored['command']}`, {stored['seconds']:.0f} s; "
            + ", ".join(f"{name} {value}" for name, value in stored["versions"].items())
            + ".\n",
        ]
    )


def main() -> None:
    """Simulate all, and store the rates."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--trials", type=int, default=TRIALS, help="simulations of each")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the tables go")
    arguments = parser.parse_args()
    started = time.process_time()
    rates = [
        measure(check, trials=arguments.trials * (10 if check.function in QUICK else 1))
        for check in CHECKS
    ]
    cpu = torch.device("cpu")
    found = versions(cpu) | {"scipy": version("scipy")}
    stored = {
        "trials": arguments.trials,
        "rates": [asdict(rate) for rate in rates],
        "spread_ratio": spread_ratio(trials=arguments.trials),
        "seconds": time.process_time() - started,
        "command": "python benchmarks/error_rates.py",
        "versions": {name: found[name] for name in ("cl-graft", "numpy", "scipy", "python")},
        "machine": machine(cpu),
    }
    if arguments.trials != TRIALS:
        stored["command"] += f" --trials {arguments.trials}"
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "error_rates.json").write_text(json.dumps(stored, indent=1) + "\n")
    text = page(stored, rates)
    (arguments.results / "error_rates.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()

"""Table 4 of the grafting paper: QNLI -> AG News -> SST-2, learned one after another.

Runs grafting, naive fine-tuning and independent fine-tuning on the paper's stream (Panigrahi et
al., 2023, Table 4 and App. C.3, https://arxiv.org/abs/2302.06600) at a chosen scale, and writes
the result with command, versions and machine to ``benchmarks/results/table4-<scale>.json`` and
``.md``. The data is found through the environment variable CL_GRAFT_DATA or ``--data``.

    python benchmarks/table4.py --scale cpu      # MiniLM, 1,024 shots, 3 seeds, on two cores
    python benchmarks/table4.py --scale smoke    # 32 shots, 10 steps, one seed: does it run?
    python benchmarks/table4.py --scale paper    # RoBERTa-base prompts, 4,096 shots: needs a GPU

An interrupted benchmark goes on where it stopped when it is started again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from cl_graft.experiments.compare import compare
from cl_graft.experiments.config import ExperimentConfig, load_config

RESULTS = Path(__file__).parent / "results"
TASKS = ["qnli", "ag_news", "sst2_sent"]
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "shots": 32,
        "steps": 10,
        "mask_steps": 4,
        "mask_batch": 32,
        "max_test": 50,
        "seeds": [0],
    },
    "cpu": {"shots": 1024, "density": 0.003, "max_test": 1000, "seeds": [0, 1, 2]},
    "paper": {
        "preset": "paper",
        "model": "roberta-base",
        "family": "masked_lm",
        "shots": 4096,
        "shots_short": "all",
        "max_length": 128,
        "max_test": None,
        "seeds": [0, 1, 2, 3, 4],
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--data", type=Path, default=os.environ.get("CL_GRAFT_DATA"))
    parser.add_argument("--out", type=Path, help="where runs go; default runs/table4-<scale>")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the summary goes")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("no data: set CL_GRAFT_DATA or give --data")
    config = config_of(arguments.scale, Path(arguments.data), arguments.sets)
    out = arguments.out or Path("runs") / f"table4-{arguments.scale}"
    compare(config, out=out)
    places = {str(arguments.data): "$CL_GRAFT_DATA", str(out): "OUT"}
    summary = json.loads(_without_places((out / "summary.json").read_text(), places))
    table = _without_places((out / "summary.md").read_text(), places)
    arguments.results.mkdir(parents=True, exist_ok=True)
    command = _without_places(shlex.join(["python", "benchmarks/table4.py", *sys.argv[1:]]), places)
    stored = {**summary, "command": command}
    name = f"table4-{arguments.scale}"
    (arguments.results / f"{name}.json").write_text(json.dumps(stored, indent=1) + "\n")
    (arguments.results / f"{name}.md").write_text(table)
    sys.stdout.write(table)


def config_of(scale: str, data: Path, sets: list[str]) -> ExperimentConfig:
    values = {"tasks": TASKS, "data": str(data), **SCALES[scale]}
    return load_config(None, [*(f"{k}={json.dumps(v)}" for k, v in values.items()), *sets])


def _without_places(text: str, places: dict[str, str]) -> str:
    """Say by name where things lay, not by path."""
    for path, name in places.items():
        text = text.replace(path, name)
    return text


if __name__ == "__main__":
    main()

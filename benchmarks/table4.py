"""Table 4 of the grafting paper: QNLI -> AG News -> SST-2, learned one after another.

Runs grafting, naive fine-tuning and independent fine-tuning on the paper's stream (Panigrahi et
al., 2023, Table 4 and App. C.3, https://arxiv.org/abs/2302.06600) at a chosen scale, and writes
the result with command, versions and machine to ``benchmarks/results/table4-<scale>.json`` and
``.md``. The data is found through the environment variable CL_GRAFT_DATA or ``--data``.

Both sides are chosen alike at the scale ``cpu``, each on dev rows of the first two tasks: the dense
rate among four by independent fine-tuning, then the region's rate among four by grafting. The
regions of ``grafting_base_gradient`` need no dense run. ``--density`` writes another size of the
regions to a file of its own.

    python benchmarks/table4.py --scale cpu      # MiniLM, 1,024 shots, 3 seeds; --workers 2
    python benchmarks/table4.py --scale smoke    # 32 shots, 10 steps, one seed: does it run?
    python benchmarks/table4.py --scale paper    # RoBERTa-base prompts, 4,096 shots: needs a GPU

An interrupted benchmark goes on where it stopped when it is started again.
"""

from __future__ import annotations

import json
from typing import Any

from baselines import shared_rate
from common import (
    format_command,
    hide_paths,
    make_config,
    make_parser,
    open_engine,
    parse_options,
    write_results,
)

from cl_graft.lab.experiments.comparison.compare import compare

TASKS = ["qnli", "ag_news", "sst2_sent"]
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "stream.shots": 32,
        "fine_tuning.steps": 10,
        "grafting.mask_steps": 4,
        "grafting.mask_batch": 32,
        "stream.max_test": 50,
        "comparison.seeds": [0],
    },
    "cpu": {
        "stream.shots": 1024,
        "grafting.density": 0.003,
        "stream.max_test": 1000,
        "comparison.strategies": ["grafting", "naive", "independent", "grafting_base_gradient"],
        "comparison.tune": True,
        "comparison.seeds": [0, 1, 2],
    },
    "paper": {
        "preset": "paper",
        "model.name": "roberta-base",
        "model.family": "masked_lm",
        "stream.shots": 4096,
        "stream.max_length": 128,
        "stream.max_test": None,
        "comparison.seeds": [0, 1, 2, 3, 4],
    },
}


def main() -> None:
    parser = make_parser(str(__doc__).splitlines()[0], SCALES, workers=True)
    parser.add_argument("--density", type=float, help="share of the weights in a region")
    arguments = parse_options(parser, "table4")
    config = make_config(
        {"stream.tasks": TASKS, **SCALES[arguments.scale]}, arguments.data, arguments.sets
    )
    shared = shared_rate(config, arguments.out / "shared") if config.comparison.tune else {}
    if shared:
        config = config.with_values({"fine_tuning.lr": shared["lr"]})
    name = "table4"
    if arguments.density is not None:
        config = config.with_values({"grafting.density": arguments.density})
        name = f"table4-{arguments.density:g}"
    out = arguments.out / name
    with open_engine(arguments) as engine:
        compare(config, out=out, engine=engine)
    summary = json.loads(hide_paths((out / "summary.json").read_text(), arguments))
    table = hide_paths((out / "summary.md").read_text(), arguments)
    command = hide_paths(format_command("table4.py"), arguments)
    write_results(name, arguments, {**summary, "shared": shared, "command": command}, table)


if __name__ == "__main__":
    main()

"""The table of baselines: five text tasks in a stream, every kind of strategy, tuned.

One comparison (`cl-graft compare`) at a stated scale: bounds, penalties, rehearsal, distillation,
isolation, merging, routing and grafting, each tuned on dev rows of the first two tasks. The
learning rate of dense training, which all but the small-module methods share, is chosen first, as
the one with which independent fine-tuning does best on dev rows of all tasks. With
``--matched 150kB`` every strategy is as large as fits into so many bytes a task, head and indices
counted. Results go with command, versions and machine to ``benchmarks/results/baselines-<scale>.*``
(``matched-<bytes>-<scale>.*``): JSON, Markdown, LaTeX, CSV and pictures. The data is found through
the environment variable CL_GRAFT_DATA or ``--data``.

    python benchmarks/baselines.py --scale cpu --workers 2   # MiniLM, 128 shots, 3 seeds
    python benchmarks/baselines.py --scale smoke             # 16 shots, 4 steps: does it run?

``--workers N`` computes N runs at once, on Ray (``pip install 'cl-graft[ray]'``).
A finished run (a strategy with a seed) is not computed again, so an interrupted
benchmark goes on where it stopped, and ``--seeds`` and ``--strategies`` can add to it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import (
    SHOTS_128,
    SMOKE,
    choose_seeds,
    format_command,
    hide_paths,
    make_config,
    make_parser,
    open_engine,
    parse_options,
)

from cl_graft.errors import DivergedError
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.comparison.tuning import (
    TUNING_SEED,
    best,
    score_candidates,
    use_dev_as_test,
)
from cl_graft.lab.experiments.run import run
from cl_graft.lab.reporting.page import make_report
from cl_graft.lab.results.run_results import RunResult
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage.cache_folder import DirectoryCache

TASKS = ["qnli", "ag_news", "sst2_sent", "mrpc", "mnli"]
STRATEGIES = [
    *("naive", "independent", "joint"),
    *("grafting", "lt_sft", "lora", "bitfit", "adapters", "prompt_tuning", "packnet", "wsn"),
    *("ewc", "mas", "lwf", "o_lora"),
    *("replay", "agem", "der", "er_ace"),
    *("sequential_lora", "merging_by_ties", "grafting_by_discriminant"),
]
MATCHED = ["naive", "independent", "grafting", "lt_sft", "lora", "adapters", "prompt_tuning"]
MATCHED += ["bitfit", "replay", "merging_by_ties"]
"""Those whose size can be set, one whose size is what it is, and two bounds."""

SCALES: dict[str, dict[str, Any]] = {"smoke": SMOKE, "cpu": SHOTS_128}
RATES = (0.05, 0.1, 0.2, 0.4)
"""Learning rates that are tried for dense training."""


def main() -> None:
    """Run the missing runs, and store the summary of all."""
    parser = make_parser(str(__doc__).splitlines()[0], SCALES, seeds=True, workers=True)
    parser.add_argument("--strategies", help="by comma; default: all of the table")
    parser.add_argument("--matched", metavar="BYTES", help="at so many bytes a task, as in 150kB")
    parser.add_argument("--untuned", action="store_true", help="every strategy at its defaults")
    arguments = parse_options(parser, "baselines")
    name = f"matched-{arguments.matched}" if arguments.matched else "baselines"
    strategies = MATCHED if arguments.matched else STRATEGIES
    values = {
        "stream.tasks": TASKS,
        **SCALES[arguments.scale],
        "comparison.strategies": arguments.strategies.split(",")
        if arguments.strategies
        else strategies,
        "comparison.tune": not arguments.untuned,
        "comparison.bytes_per_task": arguments.matched,
    }
    config = make_config(values, arguments.data, arguments.sets)
    config = config.with_values({"comparison.seeds": choose_seeds(arguments, config)})
    shared = (
        {}
        if arguments.untuned
        else shared_rate(config, arguments.out / "shared", tasks=len(config.stream.tasks))
    )
    if shared:
        config = config.with_values({"fine_tuning.lr": shared["lr"]})
    with open_engine(arguments) as engine:
        done = compare(config, out=arguments.out / name, engine=engine)
    for failure in done.failed:
        sys.stdout.write(f"{failure.strategy}, seed {failure.seed}: {failure.error}\n")
    stem = arguments.results / f"{name}-{arguments.scale}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    command = hide_paths(format_command("baselines.py"), arguments)
    summary = json.loads((done.out / "summary.json").read_text())
    summary |= {"scores": list_scores(done.runs), "shared": shared, "command": command}
    stored = json.dumps(summary, indent=1) + "\n"
    stem.with_suffix(".json").write_text(hide_paths(stored, arguments))
    for kind in (".md", ".tex", ".csv"):
        text = (done.out / f"summary{kind}").read_text()
        stem.with_suffix(kind).write_text(hide_paths(text, arguments))
    report = make_report([done.out], out=done.out / "report")
    for drawn in report.figures:
        if drawn.name == "bytes.png":
            stem.with_name(f"{stem.name}-{drawn.name}").write_bytes(drawn.read_bytes())
    sys.stdout.write(stem.with_suffix(".md").read_text())


def list_scores(runs: Sequence[RunResult]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the scores at the end by strategy, seed and task."""
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for one in runs:
        found.setdefault(one.strategy, {})[str(one.seed)] = dict(
            zip(one.tasks, one.R[-1], strict=True)
        )
    return found


def shared_rate(config: ExperimentConfig, out: Path, *, tasks: int = 2) -> dict[str, Any]:
    """Choose the learning rate of dense training: the best of independent fine-tuning on dev."""
    config = config.with_values({"comparison.tune": False, "comparison.bytes_per_task": None})
    configs = {out / f"lr={lr}": config.with_values({"fine_tuning.lr": lr}) for lr in RATES}
    cache = DirectoryCache(out / "cache")
    scores = score_on_dev(configs, "independent", cache=cache, tasks=tasks)
    return {"lr": RATES[best(scores)], "scores": dict(zip(RATES, scores, strict=True))}


def score_on_dev(
    configs: Mapping[Path, ExperimentConfig],
    strategy: str,
    *,
    cache: DirectoryCache,
    tasks: int = 2,
) -> list[float | None]:
    """Score a strategy with each config on dev rows; None where training diverges."""
    stream = next(iter(configs.values())).stream
    loaded = use_dev_as_test(load_tasks(stream, seed=TUNING_SEED), count=tasks)
    results: list[RunResult | None] = []
    for out, config in configs.items():
        try:
            result = run(
                config, strategy=strategy, seed=TUNING_SEED, out=out, tasks=loaded, cache=cache
            )
        except DivergedError:
            result = None
        results.append(result)
    return score_candidates(results)


if __name__ == "__main__":
    main()

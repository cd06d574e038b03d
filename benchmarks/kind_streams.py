"""Streams of tags, answers, intents and numbers: grafting beside fine-tuning, tuned alike.

Before strategies are compared on a stream, each side's learning rate is chosen among three, four
times apart, on dev rows of the first two tasks: the dense rate by independent fine-tuning, then the
region's rate by grafting, whose dense runs have the dense rate. Naive fine-tuning has the dense
rate, too. The results of all finished runs go with command, versions and machine to
``benchmarks/results/kind_streams-<scale>.json`` and ``.md``. The data is found through the
environment variable CL_GRAFT_DATA or ``--data``.

    python benchmarks/kind_streams.py --scale cpu                      # MiniLM, 3 seeds
    python benchmarks/kind_streams.py --scale long                     # four times the steps
    python benchmarks/kind_streams.py --streams atis-snips --seeds 0
    python benchmarks/kind_streams.py --longer                         # the control, afterwards
    python benchmarks/kind_streams.py --scale smoke                    # does it run?

Grafting trains a task twice: the dense run that finds the region, and the region. ``--longer`` adds
the control to stored results: independent fine-tuning with twice the steps, its rate chosen from
the same three.

A finished run (a strategy with a seed on a stream) is not computed again, so an
interrupted benchmark goes on where it stopped. All streams are done with the first seed before any
is with the second.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from baselines import score_on_dev
from common import (
    choose_seeds,
    describe_run,
    make_config,
    make_parser,
    parse_options,
    summarize_seeds,
    write_results,
)

from cl_graft.lab.experiments.comparison.compare import Engine, compare
from cl_graft.lab.experiments.comparison.tuning import TUNING_SEED, best
from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.stored_runs import find_runs
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.run_files import CACHE
from cl_graft.storage.cache_folder import DirectoryCache

Scores: TypeAlias = Sequence[float | None]
STRATEGIES = ["grafting", "independent", "naive"]
RATES: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "independent": ("fine_tuning.lr", (0.05, 0.2, 0.8)),
    "grafting": ("grafting.lr", (0.1, 0.4, 1.6)),
}
"""What is chosen on dev, first for dense runs: the setting of a strategy, and its values."""

STREAMS: dict[str, dict[str, Any]] = {
    "atis-snips": {
        "stream.name": "atis-snips",
        "stream.max_train": 800,
        "stream.max_length": 32,
        "fine_tuning.steps": 120,
    },
    "stsb-sst2": {
        "stream.tasks": ["stsb", "sst2_sent"],
        "stream.max_train": 800,
        "stream.max_length": 64,
        "fine_tuning.steps": 60,
    },
    "clinc150-domains": {
        "stream.name": "clinc150-domains",
        "stream.shots": 40,
        "stream.max_length": 32,
        "stream.max_test": 150,
        "fine_tuning.steps": 50,
    },
    "crossner-domains": {
        "stream.name": "crossner-domains",
        "stream.max_train": 400,
        "stream.max_length": 64,
        "stream.max_dev": 60,
        "stream.max_test": 100,
        "fine_tuning.steps": 45,
    },
    "subjqa-domains": {
        "stream.name": "subjqa-domains",
        "stream.max_train": 300,
        "stream.max_length": 128,
        "stream.max_dev": 40,
        "stream.max_test": 80,
        "fine_tuning.steps": 30,
    },
    "passages": {
        "stream.tasks": ["xquad_en", "electronics", "grocery", "restaurants", "tripadvisor"],
        "stream.task_settings": {
            domain: {"rows_from": f"subjqa/{domain}"}
            for domain in ("electronics", "grocery", "restaurants", "tripadvisor")
        },
        "stream.max_train": 300,
        "stream.max_length": 128,
        "stream.max_dev": 40,
        "stream.max_test": 80,
        "fine_tuning.steps": 30,
    },
}
LONGER = "independent, twice the steps"
SMOKE_SIZES: dict[str, Any] = {
    "stream.max_train": 16,
    "stream.shots": None,
    "stream.max_dev": 8,
    "stream.max_test": 8,
    "fine_tuning.steps": 2,
    "fine_tuning.evaluations": 1,
    "comparison.seeds": [0],
}
SCALES: dict[str, dict[str, Any]] = {
    "smoke": SMOKE_SIZES,
    "cpu": {
        "stream.max_dev": 100,
        "stream.max_test": 200,
        "fine_tuning.evaluations": 2,
        "fine_tuning.group_by_length": True,
        "grafting.localizer": "movement",
        "grafting.density": 0.003,
        "comparison.seeds": [0, 1, 2],
    },
}
SCALES["long"] = SCALES["cpu"]
STEPS = {"long": 4}
"""How many times the steps of `STREAMS` a scale has; default 1."""


def main() -> None:
    """Run the missing runs, seed by seed, and store the results after each stream."""
    parser = make_parser(str(__doc__).splitlines()[0], SCALES, seeds=True)
    parser.add_argument("--streams", default=",".join(STREAMS), help="by comma; default: all")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="by comma; default: all")
    parser.add_argument(
        "--longer", action="store_true", help=f"add {LONGER!r} to results that are stored"
    )
    arguments = parse_options(parser, "kind_streams")
    configs = {name: stream_config(name, arguments) for name in arguments.streams.split(",")}
    kept = arguments.results / f"kind_streams-{arguments.scale}.json"
    found = json.loads(kept.read_text())["streams"] if kept.is_file() else {}
    seeds = choose_seeds(arguments, next(iter(configs.values())))
    for number in range(1, len(seeds) + 1):
        for name, config in configs.items():
            own = config.with_values({"comparison.seeds": list(seeds[:number])})
            if arguments.longer:
                if name not in found:
                    raise SystemExit(f"{kept} holds no results of {name}; run it without --longer")
                run_longer(own, found[name], arguments.out / name)
            else:
                found[name] = add_longer(run_stream(own, arguments.out / name), found.get(name))
            first = next(iter(configs.values()))
            stored = {**describe_run("kind_streams.py", first, arguments), "streams": found}
            del stored["config"]  # each stream has its own
            write_results("kind_streams", arguments, stored, write_table(found))


def stream_config(name: str, arguments: argparse.Namespace) -> ExperimentConfig:
    """Return the config of a stream at the scale that was asked for, without chosen rates."""
    if name not in STREAMS:
        raise SystemExit(f"no stream {name!r} among {', '.join(STREAMS)}")
    scale = SCALES[arguments.scale]
    own = {**scale, **STREAMS[name]} if scale is not SMOKE_SIZES else {**STREAMS[name], **scale}
    own["fine_tuning.steps"] *= STEPS.get(arguments.scale, 1)
    values = {**own, "comparison.strategies": arguments.strategies.split(",")}
    return make_config(values, arguments.data, arguments.sets)


def run_stream(config: ExperimentConfig, out: Path) -> dict[str, Any]:
    """Choose the rates of a stream, run what is left of it, and return what results keep."""
    rates: dict[str, Any] = {}
    for strategy, (setting, values) in RATES.items():
        rates[strategy] = choose_rate(config, strategy, setting, values, out)
        config = config.with_values({setting: rates[strategy]["chosen"]})
    runs = make_runs(config, out / "runs")
    return {"config": stored_settings(config), "rates": rates, **describe_scores(runs)}


def make_runs(
    config: ExperimentConfig, out: Path, *, engine: Engine | None = None
) -> list[RunResult]:
    """Make the missing runs of a comparison, and return all finished ones in its folder."""
    done = compare(config, out=out, engine=engine)
    if done.failed:
        raise SystemExit("\n".join(f"{one.strategy}: {one.error}" for one in done.failed))
    return [one.result for one in find_runs([out]) if one.result.complete]


def add_longer(found: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Keep the control that earlier results of a stream have, if any."""
    for part in ("rates", "strategies"):
        if before is not None and LONGER in before[part]:
            found[part][LONGER] = before[part][LONGER]
    return found


def run_longer(config: ExperimentConfig, found: dict[str, Any], out: Path) -> None:
    """Add independent fine-tuning with twice the steps to what results keep of a stream."""
    setting, values = RATES["independent"]
    out = out / "longer"
    config = config.with_values(
        {
            "fine_tuning.steps": 2 * config.fine_tuning.steps,
            "comparison.strategies": ["independent"],
        }
    )
    rate = choose_rate(config, "independent", setting, values, out)
    runs = make_runs(config.with_values({setting: rate["chosen"]}), out / "runs")
    ends = {int(k): v for k, v in found["strategies"]["independent"]["scores"].items()}
    found["rates"][LONGER] = rate
    found["strategies"][LONGER] = describe_runs(runs, ends)


def stored_settings(config: ExperimentConfig) -> dict[str, Any]:
    """Return the settings of a stream's config that are its own."""
    stream, dense = config.stream, config.fine_tuning
    return {
        "tasks": list(stream.tasks),
        "shots": stream.shots,
        "max_train": stream.max_train,
        "max_dev": stream.max_dev,
        "max_test": stream.max_test,
        "max_length": stream.max_length,
        "steps": dense.steps,
        "batch_size": dense.batch_size,
        "density": config.grafting.density,
        "localizer": config.grafting.localizer,
    }


def choose_rate(
    config: ExperimentConfig, strategy: str, setting: str, values: Sequence[float], out: Path
) -> dict[str, Any]:
    """Choose a rate by a strategy's scores at the end, on dev rows of the first two tasks."""
    configs = {
        out / "rates" / f"{strategy}-{value}": config.with_values(
            {setting: value, "comparison.seeds": [TUNING_SEED]}
        )
        for value in values
    }
    scores = score_on_dev(configs, strategy, cache=DirectoryCache(out / "runs" / CACHE))
    tried = [{"value": value, "score": score} for value, score in zip(values, scores, strict=True)]
    return {"setting": setting, "chosen": values[best(scores)], "tried": tried}


def describe_scores(runs: Sequence[RunResult]) -> dict[str, Any]:
    """Return scores at the end by strategy and seed, forgetting, and shares of independent's."""
    ends = {one.seed: one.R[-1] for one in runs if one.strategy == "independent"}
    rows = {
        strategy: describe_runs([one for one in runs if one.strategy == strategy], ends)
        for strategy in dict.fromkeys(one.strategy for one in runs)
    }
    return {"metrics": [runs[0].metrics[task] for task in runs[0].tasks], "strategies": rows}


def describe_runs(runs: Sequence[RunResult], independent: Mapping[int, Scores]) -> dict[str, Any]:
    """Return what results keep of a strategy's runs, one a seed."""
    runs = sorted(runs, key=lambda one: one.seed)
    return {
        "scores": {str(one.seed): list(one.R[-1]) for one in runs},
        "other_scores": {str(one.seed): one.other_scores for one in runs if one.other_scores},
        "share_of_independent": summarize_seeds(
            compute_share(one.R[-1], independent[one.seed])
            for one in runs
            if one.seed in independent
        ),
        "most_forgetting": max(lost(one) for one in runs),
        "minutes": fmean(sum(map(add_seconds, one.seconds.values())) for one in runs) / 60,
    }


def compute_share(scores: Scores, independent: Scores) -> float | None:
    """Return the mean over tasks of the share of independent's score; None if all its are 0."""
    pairs = zip(scores, independent, strict=True)
    shares = [own / other for own, other in pairs if own is not None and other]
    return fmean(shares) if shares else None


def lost(result: RunResult) -> float:
    """Return the most that a task lost from the day it was learned to the end."""
    learned = [row[place] for place, row in enumerate(result.R)]
    ends = zip(learned, result.R[-1], strict=True)
    return max(float(first or 0) - float(last or 0) for first, last in ends)


def add_seconds(phases: Mapping[str, float]) -> float:
    """Return the seconds of all phases of a task."""
    return sum(phases.values())


def write_table(streams: Mapping[str, Any]) -> str:
    """Return the table of all streams as Markdown."""
    lines = [
        "| stream | measure | independent (rate) | twice the steps (rate) | grafting (rate) | "
        "naive | grafting / independent | grafting / twice the steps | forgetting of grafting | "
        "seeds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, found in streams.items():
        rows, rates = found["strategies"], found["rates"]
        share = rows["grafting"]["share_of_independent"]
        chosen = {one: f" ({rate['chosen']})" for one, rate in rates.items()}
        lines.append(
            f"| `{name}` | {', '.join(dict.fromkeys(found['metrics']))} | "
            f"{write_scores(found, 'independent')}{chosen['independent']} | "
            f"{write_scores(found, LONGER)}{chosen.get(LONGER, '')} | "
            f"{write_scores(found, 'grafting')}{chosen['grafting']} | "
            f"{write_scores(found, 'naive')} | {write_spread(share)} | "
            f"{write_spread(share_of_longer(rows))} | "
            f"{100 * rows['grafting']['most_forgetting']:.1f} | {len(rows['grafting']['scores'])} |"
        )
    return "\n".join(lines) + "\n"


def share_of_longer(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return grafting's share of independent fine-tuning with twice the steps, over seeds."""
    longer = rows.get(LONGER, {}).get("scores", {})
    own = rows["grafting"]["scores"]
    return summarize_seeds(compute_share(own[seed], longer[seed]) for seed in longer if seed in own)


def write_scores(found: Mapping[str, Any], strategy: str) -> str:
    """Return the mean score at the end, in %; of several metrics one each."""
    if strategy not in found["strategies"]:
        return "–"
    by_seed = list(found["strategies"][strategy]["scores"].values())
    shown = []
    for metric in dict.fromkeys(found["metrics"]):
        places = [place for place, one in enumerate(found["metrics"]) if one == metric]
        shown.append(f"{100 * fmean(row[p] for row in by_seed for p in places):.1f}")
    return "; ".join(shown)


def write_spread(share: Mapping[str, Any]) -> str:
    """Return a mean with its standard deviation over seeds, where there are several."""
    if share["mean"] is None:
        return "–"
    return f"{share['mean']:.3f}" + ("" if share["sd"] is None else f" ± {share['sd']:.3f}")


if __name__ == "__main__":
    main()

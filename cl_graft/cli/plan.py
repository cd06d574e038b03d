"""The command `plan`: the memory and disk space that learning with a model takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cl_graft.cli.options import AsJson, Chosen, Quiet, Sets, with_settings
from cl_graft.cli.output import Output, make_table, redirect_prints
from cl_graft.cli.progress import duration, show_progress
from cl_graft.errors import InputError

if TYPE_CHECKING:
    from cl_graft.lab.experiments.memory_estimate import Plan
    from cl_graft.lab.experiments.time_estimate import TimeEstimate
    from cl_graft.settings import ExperimentConfig

__all__ = ["plan_command"]


@with_settings(without=("stream", "tasks", "model"))
def plan_command(
    chosen: Chosen,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|CONFIG.yaml",
            help="'minilm', 'smollm2', a hub name, a folder with a config.json, or a GGUF file; "
            "or the config of a run.",
        ),
    ],
    classes: Annotated[
        int | None,
        typer.Option(
            help="Classes of a task. Default: as many as the config names labels, or 2.",
        ),
    ] = None,
    answer_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Plan tasks that generate text, with answers of at most N tokens, which are a "
            "part of --max-length. Default: as the config's tasks of the kind text2text say.",
        ),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Share of the weights that all tasks may own together."),
    ] = 1.0,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of the machine, such as 24GiB: which phases fit, and what to lower.",
        ),
    ] = None,
    measure_time: Annotated[
        bool,
        typer.Option(
            "--time",
            help="Also predict how long compare will take: load model and data of the config, "
            "and time a few steps of each task on this machine.",
        ),
    ] = False,
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict memory and disk from a model's config: no weights are loaded, no data is read.

    Each phase of learning a task runs on a model that has shapes but no values, and the tensors
    that it makes are counted. This works up to 70 B parameters on any machine. Given the config of
    a run, plan takes model and settings from there; options override them.

    [b]Examples[/b]

      cl-graft plan minilm --density 0.001

      cl-graft plan FacebookAI/roberta-base --batch-size 32 --max-length 256 --memory 8GiB

      cl-graft plan stream.yaml --memory 8GiB

      cl-graft plan stream.yaml --time

      cl-graft plan smollm2 --family causal_lm --max-length 256 --answer-tokens 32

      cl-graft plan meta-llama/Llama-3.1-70B --family causal_lm --dtype bfloat16
    """
    from cl_graft.lab.experiments.memory_estimate import make_plan
    from cl_graft.runtime.byte_sizes import parse_bytes
    from cl_graft.settings import load_config

    output = Output(quiet, as_json)
    file = Path(model) if Path(model).suffix in (".yaml", ".yml") else None
    if measure_time and file is None:
        raise InputError("--time needs the config of a run, which names tasks and strategies")
    if file is None:
        chosen = chosen.also("model.name", model, "MODEL")
    config = load_config(
        file,
        sets or (),
        options=chosen.values,
        origins=chosen.options,
        # Memory is that of any tasks, and steps are timed on those that the config names.
        under={} if measure_time or _names_stream(file) else {"stream": {"tasks": ["any"]}},
    )
    estimate: TimeEstimate | None = None
    there_is = parse_bytes(memory) if memory is not None else None
    with redirect_prints(), show_progress(output) as progress:
        if measure_time:  # first, as it may refuse the config
            from cl_graft.lab.experiments.time_estimate import estimate_time

            estimate = estimate_time(config, progress=progress.phase)
        plan = make_plan(
            config,
            classes=classes,
            answer_tokens=answer_tokens,
            budget=budget,
            memory=there_is,
            progress=progress.phase,
        )
    plan = replace(plan, time=estimate)
    output.result(plan, *_describe_plan(plan, config, budget=budget))


def _describe_plan(plan: Plan, config: ExperimentConfig, *, budget: float) -> list[Any]:
    """Return what is shown of a plan: the model, its phases, the disk, and the time."""
    from cl_graft.runtime.byte_sizes import readable_bytes as size

    entry = plan.entry
    coordinate_bits = 8 * entry.indices / plan.region
    of_budget = "" if budget == 1 else f" {budget:g} of"
    return [
        f"{plan.model} ({config.model.family}, {config.model.dtype}): {plan.parameters:,} "
        f"parameters, {size(plan.model_bytes)}; {plan.graftable:,} graftable in "
        f"{plan.graftable_tensors} tensors",
        _make_phase_table(plan, precision=config.model.precision),
        *(f"{phase.name}: {phase.advice}" for phase in plan.phases if phase.advice),
        f"A task: {plan.region:,} coordinates, {size(plan.entry_total)} on disk: values "
        f"{size(entry.values)}, indices {size(entry.indices)} ({coordinate_bits:.1f} bits each), "
        f"head {size(entry.head)}, recorded batch {size(entry.recorded_batch)}, "
        f"the rest {size(entry.rest)}.",
        f"{plan.tasks:,} tasks own{of_budget} all graftable coordinates; together "
        f"{size(plan.tasks * plan.entry_total)} on disk. Serving holds {size(plan.serving)} a "
        "task.",
        *_describe_time(plan.time),
    ]


def _make_phase_table(plan: Plan, *, precision: str) -> Any:
    from cl_graft.runtime.byte_sizes import readable_bytes as size

    rows = [
        (phase.name, size(plan.model_bytes), size(phase.kept), size(phase.step), size(phase.peak))
        + ((("yes" if phase.fits else "no"),) if plan.memory is not None else ())
        for phase in plan.phases
    ]
    columns = ("phase", "model", "kept beside it", "a step on top", "peak")
    if plan.memory is not None:
        columns += (f"fits {size(plan.memory)}",)
    answers = f", answers of {plan.answer_tokens}" if plan.answer_tokens else ""
    return make_table(
        f"Memory, {plan.workload.batch_size} × {plan.workload.length} tokens a step, "
        f"{precision}{answers}",
        columns,
        rows,
    )


def _names_stream(file: Path | None) -> bool:
    """Tell whether a config takes its tasks from a named stream."""
    from cl_graft.data.yaml_files import read_yaml_file

    stream = read_yaml_file(file).get("stream") if file is not None else None
    return isinstance(stream, Mapping) and stream.get("name") is not None


def _describe_time(found: TimeEstimate | None) -> list[Any]:
    """Return the table of times and the sum; nothing where time was not measured."""
    if found is None:
        return []
    rows = [(name, duration(seconds)) for name, seconds in found.strategies.items()]
    runs = f", {found.runs} runs of each" if found.runs > 1 else ""
    return [
        make_table("Time on this machine", ("strategy", "a run"), rows),
        f"Together about {duration(found.total)}{runs}, one after the other, from steps that "
        "were timed just now; tuning and sweeps come on top. A dense run that strategies share "
        "counts with the first of them.",
    ]

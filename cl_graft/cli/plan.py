"""`plan`: what learning with a model will take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cl_graft.cli.options import As_json, Quiet, Trusted
from cl_graft.cli.output import Output, apart, given, table
from cl_graft.cli.progress import meter

__all__ = ["plan_command"]


def plan_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|CONFIG.yaml",
            help="'minilm', a hub name, or a folder with a config.json; or the config of a run.",
        ),
    ],
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="encoder, masked_lm or causal_lm.", show_default="encoder"
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Type of the weights: float32, bfloat16, float16.",
            show_default="float32",
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What fp32 weights compute in: fp32, bf16, fp16.",
            show_default="fp32",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows a training step.", show_default="8")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens a row.", show_default="64")] = None,
    micro_batch: Annotated[
        int | None,
        typer.Option(
            help="Rows computed at a time; else a batch, 32 in localization.", show_default=False
        ),
    ] = None,
    eval_batch: Annotated[
        int | None, typer.Option(help="Rows a batch in evaluation.", show_default="64")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Classes of a task.", show_default="2")
    ] = None,
    density: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Of a task's region, in (0, 1].", show_default="0.002"),
    ] = None,
    mask_candidates: Annotated[
        int | None,
        typer.Option(
            help="Candidates of a mask, in multiples of the region's size.", show_default="20"
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Of the weights that all tasks together may own.",
            show_default="1.0",
        ),
    ] = None,
    gradient_checkpointing: Annotated[
        bool,
        typer.Option("--gradient-checkpointing", help="Compute activations again, not keep them."),
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory there is, as 24GiB: says which phases fit, and what to lower.",
            show_default=False,
        ),
    ] = None,
    trust_remote_code: Trusted = False,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Predict memory and disk from a model's config: no weights are loaded, no data is read.

    Each phase of learning a task runs on a model that has shapes but no numbers, so what is counted
    is what the code does. Works up to 70 B parameters on any machine. Given the config of a run, it
    takes model and settings from there; what an option says goes before them.

    [b]Examples[/b]

      cl-graft plan minilm --density 0.001

      cl-graft plan FacebookAI/roberta-base --batch-size 32 --max-length 256 --memory 8GiB

      cl-graft plan stream.yaml --memory 8GiB

      cl-graft plan meta-llama/Llama-3.1-70B --family causal_lm --dtype bfloat16
    """
    from cl_graft.experiments.config import density_note, load_config
    from cl_graft.experiments.memory_check import plan_settings
    from cl_graft.experiments.memory_estimate import PlanSettings, make_plan
    from cl_graft.runtime.byte_sizes import parse_bytes, readable_bytes

    output = Output(quiet, as_json)
    own: dict[str, Any] = given(
        family=family, dtype=dtype, precision=precision, batch_size=batch_size,
        micro_batch=micro_batch, eval_batch=eval_batch, max_length=max_length, classes=classes,
        density=density, mask_candidates=mask_candidates, budget=budget,
        gradient_checkpointing=gradient_checkpointing or None,
        trust_remote_code=trust_remote_code or None,
    )  # fmt: skip
    if Path(model).suffix in (".yaml", ".yml"):
        loaded = load_config(model)
        model, planned = loaded.model, plan_settings(loaded, max_length=max_length)
        settings = replace(planned, **own)
    else:
        settings = PlanSettings(**own)
    if note := density_note(settings.density):
        output.note(note)
    there_is = parse_bytes(memory) if memory is not None else None
    with apart(), meter(output) as progress:
        plan = make_plan(model, settings, memory=there_is, progress=progress.phase)
    size = readable_bytes
    entry = plan.entry
    coordinate_bits = 8 * entry.indices / plan.region
    of_budget = "" if settings.budget == 1 else f" {settings.budget:g} of"
    disk = (
        f"A task: {plan.region:,} coordinates, {size(plan.entry_total)} on disk: values "
        f"{size(entry.values)}, indices {size(entry.indices)} ({coordinate_bits:.1f} bits each), "
        f"head {size(entry.head)}, recorded batch {size(entry.recorded_batch)}, "
        f"the rest {size(entry.rest)}."
    )
    until_full = (
        f"{plan.tasks:,} tasks own{of_budget} all graftable coordinates; together "
        f"{size(plan.tasks * plan.entry_total)} on disk. Serving holds {size(plan.serving)} a task."
    )
    rows = [
        (phase.name, size(plan.model_bytes), size(phase.kept), size(phase.step), size(phase.peak))
        + ((("yes" if phase.fits else "no"),) if plan.memory is not None else ())
        for phase in plan.phases
    ]
    columns = ("phase", "model", "kept beside it", "a step on top", "peak")
    title = (
        f"Memory, {settings.batch_size} × {settings.max_length} tokens a step, {settings.precision}"
    )
    if plan.memory is not None:
        columns += (f"fits {size(plan.memory)}",)
    output.result(
        plan,
        f"{plan.model} ({settings.family}, {settings.dtype}): {plan.parameters:,} parameters, "
        f"{size(plan.model_bytes)}; {plan.graftable:,} graftable in {plan.graftable_tensors} "
        "tensors",
        table(title, columns, rows),
        *(f"{phase.name}: {phase.advice}" for phase in plan.phases if phase.advice),
        disk,
        until_full,
    )

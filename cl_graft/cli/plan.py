"""`plan`: what learning with a model will take."""

from __future__ import annotations

from typing import Annotated

import typer

from cl_graft.cli.options import As_json, Quiet, Trusted
from cl_graft.cli.output import Output, apart, table
from cl_graft.cli.progress import meter

__all__ = ["plan_command"]


def plan_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="'minilm', a hub name, or a folder with a config.json."
        ),
    ],
    family: Annotated[
        str, typer.Option(metavar="NAME", help="encoder, masked_lm or causal_lm.")
    ] = "encoder",
    dtype: Annotated[
        str, typer.Option(metavar="NAME", help="Type of the weights: float32, bfloat16, float16.")
    ] = "float32",
    precision: Annotated[
        str, typer.Option(metavar="NAME", help="What fp32 weights compute in: fp32, bf16, fp16.")
    ] = "fp32",
    batch_size: Annotated[int, typer.Option(help="Rows a training step.")] = 8,
    max_length: Annotated[int, typer.Option(help="Tokens a row.")] = 64,
    micro_batch: Annotated[
        int | None,
        typer.Option(
            help="Rows computed at a time; else a batch, 32 in localization.", show_default=False
        ),
    ] = None,
    eval_batch: Annotated[int, typer.Option(help="Rows a batch in evaluation.")] = 64,
    classes: Annotated[int, typer.Option(help="Classes of a task.")] = 2,
    density: Annotated[
        float, typer.Option(metavar="SHARE", help="Of a task's region, in (0, 1].")
    ] = 0.002,
    mask_candidates: Annotated[
        int, typer.Option(help="Candidates of a mask, in multiples of the region's size.")
    ] = 20,
    budget: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Of the weights that all tasks together may own."),
    ] = 1.0,
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
    is what the code does. Works up to 70 B parameters on any machine.

    [b]Examples[/b]

      cl-graft plan minilm --density 0.001

      cl-graft plan FacebookAI/roberta-base --batch-size 32 --max-length 256 --memory 8GiB

      cl-graft plan meta-llama/Llama-3.1-70B --family causal_lm --dtype bfloat16
    """
    from cl_graft.planning import PlanSettings, make_plan
    from cl_graft.planning.sizes import parse_bytes, readable_bytes

    output = Output(quiet, as_json)
    settings = PlanSettings(
        family=family,
        dtype=dtype,
        precision=precision,
        batch_size=batch_size,
        micro_batch=micro_batch,
        eval_batch=eval_batch,
        max_length=max_length,
        classes=classes,
        density=density,
        mask_candidates=mask_candidates,
        budget=budget,
        gradient_checkpointing=gradient_checkpointing,
        trust_remote_code=trust_remote_code,
    )
    there_is = parse_bytes(memory) if memory is not None else None
    with apart(), meter(output) as progress:
        plan = make_plan(model, settings, memory=there_is, progress=progress.phase)
    size = readable_bytes
    entry = plan.entry
    coordinate_bits = 8 * entry.indices / plan.region
    of_budget = "" if budget == 1 else f" {budget:g} of"
    disk = (
        f"A task: {plan.region:,} coordinates, {size(plan.entry_total)} on disk: values "
        f"{size(entry.values)}, indices {size(entry.indices)} ({coordinate_bits:.1f} bits each), "
        f"head {size(entry.head)}, recorded batch {size(entry.canary)}, "
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
    title = f"Memory, {batch_size} × {max_length} tokens a step, {precision}"
    if plan.memory is not None:
        columns += (f"fits {size(plan.memory)}",)
    output.result(
        plan,
        f"{plan.model} ({family}, {dtype}): {plan.parameters:,} parameters, "
        f"{size(plan.model_bytes)}; {plan.graftable:,} graftable in {plan.graftable_tensors} "
        "tensors",
        table(title, columns, rows),
        *(f"{phase.name}: {phase.advice}" for phase in plan.phases if phase.advice),
        disk,
        until_full,
    )

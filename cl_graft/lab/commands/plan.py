"""The command `plan`: the memory and disk space that learning with a model takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cl_graft.cli.options import AsJson, Chosen, Quiet, Sets, argument, option, with_settings
from cl_graft.cli.output import Output, make_table, redirect_prints

if TYPE_CHECKING:
    from cl_graft.lab.experiments.plan import Plan
    from cl_graft.settings import ExperimentConfig


@with_settings(without=("stream", "tasks", "model"))
def plan_command(
    chosen: Chosen,
    model: Annotated[
        str,
        argument(
            "MODEL|CONFIG.yaml",
            "'minilm', 'mpnet', 'smollm2', a hub name, or a folder with a config.json; or the "
            "config of a run.",
        ),
    ],
    memory: Annotated[
        str | None, option("SIZE", "Memory of the machine, such as 24GiB: say which phases fit.")
    ] = None,
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict memory and disk from a model's config: no weights are loaded, no data is read.

    Dense run, localization and region training take two steps on a model that has shapes but no
    values, and the tensors that they make are counted. This works up to 70 B parameters on any
    machine. Given the config of a run, plan takes model and settings from there; options override
    them.

    [b]Examples[/b]

      cl-graft plan minilm --density 0.001

      cl-graft plan FacebookAI/roberta-base --batch-size 32 --max-length 256 --memory 8GiB

      cl-graft plan stream.yaml --memory 8GiB

      cl-graft plan meta-llama/Llama-3.1-70B --family causal_lm --dtype bfloat16
    """
    from cl_graft.lab.experiments.plan import make_plan
    from cl_graft.runtime.byte_sizes import parse_bytes
    from cl_graft.settings import load_config

    output = Output(quiet, as_json)
    file = Path(model) if Path(model).suffix in (".yaml", ".yml") else None
    if file is None:
        chosen = chosen.also("model.name", model, "MODEL")
    config = load_config(
        file,
        sets or (),
        options=chosen.values,
        origins=chosen.options,
        # Memory is that of any tasks.
        under={} if _names_stream(file) else {"stream": {"tasks": ["any"]}},
    )
    available = parse_bytes(memory) if memory is not None else None
    with redirect_prints():
        plan = make_plan(config)
    output.result(plan, *_describe_plan(plan, config, available=available))


def _describe_plan(plan: Plan, config: ExperimentConfig, *, available: int | None) -> list[Any]:
    from cl_graft.lab.experiments.plan import find_storage
    from cl_graft.runtime.byte_sizes import readable_bytes as size
    from cl_graft.storage.elias_fano import packed_size

    entry, together = plan.entry, plan.tasks * plan.entry_total
    if find_storage(config.grafting) == "seed":  # later entries pass over what earlier ones own
        together += plan.tasks * packed_size(plan.region, plan.graftable)
    columns = ["phase", "model", "kept beside it", "a step on top", "peak"]
    rows = [
        [phase.name, *map(size, (plan.model_bytes, phase.kept, phase.step, phase.peak))]
        for phase in plan.phases
    ]
    advice: list[str] = []
    if available is not None:
        columns.append(f"fits {size(available)}")
        for row, phase in zip(rows, plan.phases, strict=True):
            row.append("yes" if phase.peak <= available else "no")
        if any(phase.peak > available for phase in plan.phases):
            advice.append(
                "To lower a phase: --micro-batch, --max-length, --gradient-checkpointing, --dtype "
                "bfloat16; the localizer random needs no dense run."
            )
    answers = f", answers of {plan.answer_tokens}" if plan.answer_tokens else ""
    title = f"Memory, {plan.batch_size} × {plan.max_length} tokens a step, {config.model.precision}"
    return [
        f"{plan.model} ({config.model.family}, {config.model.dtype}): {plan.parameters:,} "
        f"parameters, {size(plan.model_bytes)}; {plan.graftable:,} graftable",
        make_table(title + answers, columns, rows),
        *advice,
        f"A task: {plan.region:,} coordinates, {size(plan.entry_total)} on disk: values "
        f"{size(entry.values)}, indices {size(entry.indices)} "
        f"({8 * entry.indices / plan.region:.1f} bits each), head {size(entry.head)}, the rest "
        f"{size(entry.rest)}.",
        f"Whole regions that fit beside each other (prefix mode): {plan.tasks:,}, together at most "
        f"{size(together)} on disk.",
    ]


def _names_stream(file: Path | None) -> bool:
    """Tell whether a config takes its tasks from a named stream."""
    from cl_graft.data.yaml_files import read_yaml_file

    stream = read_yaml_file(file).get("stream") if file is not None else None
    return isinstance(stream, Mapping) and stream.get("name") is not None

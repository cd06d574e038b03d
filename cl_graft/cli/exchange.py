"""The commands `export` and `import`: a task of a bank as files of another tool, and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cl_graft.cli.options import (
    AsJson,
    Bank,
    MovedModel,
    Quiet,
    TrustRemoteCode,
    argument,
    flag,
    option,
)
from cl_graft.cli.output import Output, redirect_prints
from cl_graft.errors import InputError, a_or_an

if TYPE_CHECKING:
    from cl_graft.data import Prompt
    from cl_graft.integrations.task_import import Imported


def export_command(
    bank: Bank,
    task: Annotated[str, option("NAME", "Which task to write.")],
    out: Annotated[Path, option("DIR", "The folder to make.")],
    form: Annotated[
        str, option("hf|peft-shira|peft-lora", "Format of the files.", "--format")
    ] = "hf",
    model: MovedModel = None,
    trust_remote_code: TrustRemoteCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write one task of a bank as files that transformers or PEFT reads.

    hf is a whole checkpoint. If transformers has no class for the head (as for the mean of all
    tokens), the head's weights are in a file beside the encoder. peft-shira is an adapter of
    PEFT, with whole copies of the modules that are no nn.Linear. peft-lora is a LoRA, for tasks
    whose regions are columns or rows of weight matrices.
    A README in the folder has the code that loads the task without this package.

    [b]Examples[/b]

      cl-graft export first/grafting/seed0 --task scope --out scope

      cl-graft export my_bank --task tickets --format peft-shira --out adapter
    """
    from cl_graft.integrations import export_task
    from cl_graft.integrations.export_record import format_counts

    output = Output(quiet, as_json)
    with redirect_prints():
        exported = export_task(
            bank, task, format=form, out=out, model=model, trust_remote_code=trust_remote_code
        )
    size = sum(exported.files.values())
    lines = [
        f"{exported.folder}: task {exported.task!r} as {exported.format}, "
        f"{exported.coordinates:,} coordinates, {size:,} bytes; how to load it is in README.md"
    ]
    if exported.copied:
        lines.append(f"In whole copies of their modules: {format_counts(exported.copied)}")
    output.result(exported, *lines)


def import_command(
    source: Annotated[
        Path, argument("SOURCE", "A folder of a PEFT adapter, a tuned checkpoint or an export.")
    ],
    bank: Annotated[Path, option("DIR", "The bank; a new one is made in isolated mode.")],
    task: Annotated[str, option("NAME", "Name of the task in the bank.")],
    base: Annotated[
        str | None, option("NAME", "The model that was fine-tuned; needed for a new bank.")
    ] = None,
    family: Annotated[
        str | None, option("encoder|masked_lm|causal_lm", "Family of a new bank's base.")
    ] = None,
    density: Annotated[
        float | None, option("SHARE", "Share of the weights to keep: those that moved most.")
    ] = None,
    labels: Annotated[str | None, option("NAME,…", "Labels in the order of the logits.")] = None,
    template: Annotated[
        str | None, option("TEXT", "Template of the prompt, as '{text} It was {mask}.'")
    ] = None,
    words: Annotated[
        str | None, option("WORD,…", "Label words of the prompt, one per label.")
    ] = None,
    pair: Annotated[bool | None, flag("--pair/--single", "Whether a row has two texts.")] = None,
    max_length: Annotated[int | None, option("TOKENS", "Largest number of tokens per row.")] = None,
    leave_out: Annotated[
        bool, flag("--leave-out", "Leave out tuned weights that are not graftable.")
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Add to a bank what another tool fine-tuned, as a task.

    The coordinates at which the source differs from the base become the region, and the source's
    values there the graft. The source is an adapter of PEFT (LoRA, SHiRA and any other that can be
    merged), a checkpoint tuned from the base, or what export wrote. No code in a file is ever run.

    [b]Examples[/b]

      cl-graft import adapter --bank my_bank --task tickets --base FacebookAI/roberta-base

      cl-graft import tuned --bank my_bank --task reviews --density 0.002
    """
    from cl_graft.integrations import import_task

    output, names = Output(quiet, as_json), _split(labels)
    prompt = None if template is None else _make_prompt(template, names, _split(words))
    with redirect_prints():
        imported = import_task(
            source,
            bank,
            task=task,
            base=base,
            family=family,
            density=density,
            label_names=names,
            prompt=prompt,
            pair=pair,
            max_length=max_length,
            leave_out=leave_out,
            trust_remote_code=trust_remote_code,
        )
    output.result(imported, *_describe(imported))


def _make_prompt(template: str, names: Sequence[str], words: Sequence[str]) -> Prompt:
    from cl_graft.data import Prompt

    if not names or len(words) != len(names):
        raise InputError(
            f"a template needs --labels and as many --words, got {len(names)} and {len(words)}"
        )
    return Prompt(template, dict(zip(names, words, strict=True)))


def _describe(imported: Imported) -> list[str]:
    """Say which entry was made, and what of the source it does not hold."""
    from cl_graft.integrations.export_record import format_counts

    lines = [
        f"{imported.bank}: entry {imported.position}, task {imported.task!r}, from "
        f"{a_or_an(imported.kind)}: {imported.coordinates:,} of {imported.moved:,} "
        f"coordinates that moved ({imported.density:.4%} of the model's)"
        f"{'' if imported.new else ', which was there already'}"
    ]
    if imported.left_out:
        lines.append(f"LEFT OUT, so answers differ: {format_counts(imported.left_out)}")
    return lines


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]

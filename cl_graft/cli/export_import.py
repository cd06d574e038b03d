"""`export` and `import`: what other tools read of a bank, and what it reads of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cl_graft.cli.options import As_json, Moved, Quiet, Trusted
from cl_graft.cli.output import Output, apart, plain
from cl_graft.errors import InputError

if TYPE_CHECKING:
    from cl_graft.integrations import Exported

__all__ = ["export_command", "import_command"]


def export_command(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN_OR_BANK", help="A bank, or a run of grafting.")
    ],
    task: Annotated[
        str, typer.Option(metavar="NAME", help="Which task to write.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder to make.", show_default=False)
    ],
    form: Annotated[
        str, typer.Option("--format", metavar="hf|peft-shira|safetensors-overlay", help="As what.")
    ] = "hf",
    rest: Annotated[
        str,
        typer.Option(
            metavar="refuse|leave-out|copy",
            help="What to do with coordinates that peft-shira cannot hold, which are in no matrix "
            "of an nn.Linear: refuse, leave them out, or put whole copies of their modules beside.",
        ),
    ] = "refuse",
    model: Moved = None,
    trust_remote_code: Trusted = False,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Write one task of a bank as files that transformers, PEFT or any other tool reads.

    hf is a whole checkpoint; where transformers has no class for the head (as for the mean of all
    tokens), that is the encoder and the head's weights. peft-shira is an adapter,
    safetensors-overlay one file of flat numbers and values. A README in the folder has the lines
    that load it and answer texts, without this package; what a format cannot hold is told in
    numbers.

    [b]Examples[/b]

      cl-graft export first/grafting/seed0 --task sentiment --out sentiment

      cl-graft export my_bank --task tickets --format peft-shira --rest copy --out adapter
    """
    from cl_graft.integrations import export_task

    output = Output(quiet, as_json)
    with apart():
        exported = export_task(
            folder,
            task,
            format=form,
            out=out,
            rest=cast(Any, rest),
            model=model,
            trust_remote_code=trust_remote_code,
        )
    output.result(_content(exported), *_lines(exported))


def _content(exported: Exported) -> dict[str, Any]:
    content = plain(exported)
    return {**content, "written": {k: v for k, v in content["written"].items() if k != "record"}}


def _lines(exported: Exported) -> list[str]:
    from cl_graft.integrations.export_record import format_counts

    written, size = exported.written, sum(exported.files.values())
    lines = [
        f"{exported.folder}: task {exported.task!r} as {exported.format}, "
        f"{exported.coordinates:,} coordinates, {size:,} bytes; how to load it is in README.md"
    ]
    if written.copied:
        lines.append(f"In whole copies of their modules: {format_counts(written.copied)}")
    if written.left_out:
        lines.append(f"LEFT OUT, so answers differ: {format_counts(written.left_out)}")
    if written.inexact:
        lines.append(
            f"{written.inexact:,} values have other bits, as no difference gives theirs; the "
            f"largest error is {written.largest_error:.2g}"
        )
    return lines


def import_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of a PEFT adapter, a tuned checkpoint or an export; or a file of "
            "composable-sft.",
        ),
    ],
    bank: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="The bank; a new one is made in isolated mode.", show_default=False
        ),
    ],
    task: Annotated[str, typer.Option(metavar="NAME", help="Its name.", show_default=False)],
    base: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model that was fine-tuned; needed for a new bank.",
            show_default=False,
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="encoder|masked_lm|causal_lm", help="Of a new bank.", show_default=False
        ),
    ] = None,
    density: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Keep the weights that moved most.", show_default=False),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…", help="Labels in the order of the logits.", show_default=False
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Of a prompt: '{text} It was {mask}.'", show_default=False
        ),
    ] = None,
    words: Annotated[
        str | None,
        typer.Option(metavar="WORD,…", help="Of a prompt, a word a label.", show_default=False),
    ] = None,
    pair: Annotated[
        bool | None, typer.Option("--pair/--single", help="Texts a row.", show_default=False)
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="A row.", show_default=False)
    ] = None,
    leave_out: Annotated[
        bool,
        typer.Option("--leave-out", help="Without what it moved that is not graftable."),
    ] = False,
    trust_remote_code: Trusted = False,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Make a task of a bank of what another tool fine-tuned.

    Where the source moved the base becomes the region, its values the graft. Read are adapters of
    PEFT (LoRA, SHiRA and any other that merges), files of composable-sft, checkpoints tuned from
    the base, and what export wrote. Nothing in a file is ever run.

    [b]Examples[/b]

      cl-graft import adapter --bank my_bank --task tickets --base FacebookAI/roberta-base

      cl-graft import tuned --bank my_bank --task reviews --density 0.002
    """
    from cl_graft.data import Prompt
    from cl_graft.integrations import import_task
    from cl_graft.integrations.export_record import format_counts

    output, names = Output(quiet, as_json), _parts(labels)
    prompt = None
    if template is not None:
        said = _parts(words)
        if not names or len(said) != len(names):
            raise InputError(
                f"a template needs --labels and as many --words, got {len(names)} and {len(said)}"
            )
        prompt = Prompt(template, dict(zip(names, said, strict=True)))
    with apart():
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
    shown = [
        f"{imported.bank}: entry {imported.position}, task {imported.task!r}, from a "
        f"{imported.kind}: {imported.coordinates:,} of {imported.moved:,} coordinates that moved "
        f"({imported.density:.4%} of the model's)"
        f"{'' if imported.new else ', which was there already'}"
    ]
    if imported.left_out:
        shown.append(f"LEFT OUT, so answers differ: {format_counts(imported.left_out)}")
    output.result(imported, *shown)


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]

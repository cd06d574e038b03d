"""The command `export`: a task of a bank as files of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cl_graft.cli.options import AsJson, Bank, MovedModel, Quiet, TrustRemoteCode, option
from cl_graft.cli.output import Output, redirect_prints


def export_command(
    bank: Bank,
    task: Annotated[str, option("NAME", "Which task to write.")],
    out: Annotated[Path, option("DIR", "The folder to make.")],
    form: Annotated[str, option("hf|peft-shira", "Format of the files.", "--format")] = "hf",
    model: MovedModel = None,
    trust_remote_code: TrustRemoteCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write one task of a bank as files that transformers or PEFT reads.

    hf is a whole checkpoint. If transformers has no class for the head (as for the mean of all
    tokens), the head's weights are in a file beside the encoder. peft-shira is an adapter of
    PEFT, with whole copies of the modules that are no nn.Linear.
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
            bank,
            task,
            format=form,
            out=out,
            model=model,
            trust_remote_code=trust_remote_code,
        )
    size = sum(exported.files.values())
    lines = [
        f"{exported.folder}: task {exported.task!r} as {exported.format}, "
        f"{exported.coordinates:,} coordinates, {size:,} bytes; how to load it is in README.md"
    ]
    if exported.copied:
        lines.append(f"In whole copies of their modules: {format_counts(exported.copied)}")
    output.result(exported, *lines)

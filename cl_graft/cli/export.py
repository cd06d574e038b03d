"""The command `export`: a task of a bank as files of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cl_graft.cli.options import AsJson, Bank, MovedModel, Quiet, TrustRemoteCode, option
from cl_graft.cli.output import Output, redirect_prints, to_plain

if TYPE_CHECKING:
    from cl_graft.integrations import Exported


def export_command(
    bank: Bank,
    task: Annotated[str, option("NAME", "Which task to write.")],
    out: Annotated[Path, option("DIR", "The folder to make.")],
    form: Annotated[str, option("hf|peft-shira", "Format of the files.", "--format")] = "hf",
    rest: Annotated[
        str,
        option(
            "refuse|leave-out|copy",
            "What to do with coordinates that peft-shira cannot hold, as they are in no matrix"
            " of an nn.Linear: refuse, leave them out, or add whole copies of their modules.",
        ),
    ] = "refuse",
    model: MovedModel = None,
    trust_remote_code: TrustRemoteCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write one task of a bank as files that transformers or PEFT reads.

    hf is a whole checkpoint. If transformers has no class for the head (as for the mean of all
    tokens), the head's weights are in a file beside the encoder. peft-shira is an adapter of PEFT.
    A README in the folder has the code that loads the task without this package.
    If the format cannot hold some weights, their number is printed.

    [b]Examples[/b]

      cl-graft export first/grafting/seed0 --task scope --out scope

      cl-graft export my_bank --task tickets --format peft-shira --rest copy --out adapter
    """
    from cl_graft.integrations import export_task

    output = Output(quiet, as_json)
    with redirect_prints():
        exported = export_task(
            bank,
            task,
            format=form,
            out=out,
            rest=cast(Any, rest),
            model=model,
            trust_remote_code=trust_remote_code,
        )
    content = to_plain(exported)
    content["written"].pop("record", None)
    output.result(content, *_lines(exported))


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

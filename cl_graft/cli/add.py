"""The command `add`: the next task of a bank."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

from cl_graft.cli import options
from cl_graft.cli.options import option
from cl_graft.cli.output import Output, format_score, redirect_prints, to_plain
from cl_graft.cli.progress import show_progress


@options.with_settings(
    without=(
        *("stream", "tasks", "scenario", "classes_per_experience", "mode"),
        *("model", "family", "pooling", "dtype", "precision", "device", "trust_remote_code"),
    ),
    defaults=False,
)
def add_command(
    chosen: options.Chosen,
    bank: options.Bank,
    task: Annotated[str, option("NAME", "A preset or built-in task, a path, or a hub name.")],
    sets: options.Sets = None,
    model: options.MovedModel = None,
    device: options.Device = None,
    trust_remote_code: options.TrustRemoteCode = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Teach the next task to a bank. Earlier tasks keep every bit of their answers.

    It needs the bank, its base model and the new data. Settings that are not given are those of the
    bank's own run. If the bank has a task of this name already, a new entry answers it from now on,
    and the earlier entry stays as it is. If the task was learned before from the same data with the
    same settings, nothing is done.

    [b]Examples[/b]

      cl-graft add first/grafting/seed0/bank --task entailment --shots 256

      cl-graft add my_bank --data tickets.csv --task tickets --text body --label queue
    """
    from cl_graft.banks.add import add_task
    from cl_graft.settings import to_nested

    output = Output(quiet, as_json)
    with redirect_prints(), show_progress(output) as progress:
        added = add_task(
            bank,
            task,
            model=model,
            settings=to_nested(to_plain(chosen.values)),
            sets=sets or (),
            options=chosen.options,
            device=device,
            trust_remote_code=trust_remote_code,
            progress=progress.step,
        )
    output.result(
        added,
        f"{added.bank}: entry {added.position}, task {added.task!r} (label {added.label})"
        + ("" if added.new else ", learned before from the same data with the same settings"),
        f"{added.owned:,} coordinates ({added.density:.3%}), "
        f"test {added.metric} {format_score(added.test)} on {added.test_rows} rows",
        *added.notes,
        ("No entry was touched" if not added.new else "Earlier entries were not touched")
        + f"; check with: cl-graft verify {quote(str(added.bank))}",
    )

"""The command `forget`: a task taken out of a bank."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated

from cl_graft.cli import options
from cl_graft.cli.options import argument, flag
from cl_graft.cli.output import Output, make_table, redirect_prints
from cl_graft.cli.progress import show_progress
from cl_graft.errors import InputError

if TYPE_CHECKING:
    from cl_graft.banks.forget import Dependent, Forgotten


def forget_command(
    bank: options.Bank,
    task: Annotated[
        str, argument("TASK", "The task to forget, by name, or an entry, by its position.")
    ],
    latest: Annotated[
        bool,
        flag(
            "--latest",
            "Forget only the latest entry of that name; the one before it answers again.",
        ),
    ] = False,
    retrain: Annotated[
        bool, flag("--retrain", "Train later tasks that build on it again, from their data.")
    ] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Only say what would be done to the bank.")] = False,
    data: options.Data = None,
    sets: options.Sets = None,
    model: options.MovedModel = None,
    device: options.Device = None,
    trust_remote_code: options.TrustRemoteCode = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete a task, or an entry of it, from a bank.

    In isolated mode any task can be deleted, in prefix mode a task on which no later one builds,
    such as the last: file by file the bank becomes the one that never saw the task. If later tasks
    build on it, nothing is changed unless these are trained again (--retrain); the report says how
    much their answers to their recorded rows would change without the task. The run's results and
    its cache, which also hold data of the task, are not deleted; the report names them.

    A task that was learned several times has several entries, which are all deleted. With --latest
    or a position (as inspect shows it) one is.

    Exit code: 0 done, or a dry run; 2 nothing was changed.

    [b]Examples[/b]

      cl-graft forget first/grafting/seed0/bank topic --dry-run

      cl-graft forget first/grafting/seed0/bank topic --retrain

      cl-graft forget my_bank tickets --latest
    """
    from cl_graft.banks.forget import forget

    output = Output(quiet, as_json)
    with redirect_prints(), show_progress(output) as progress:
        report = forget(
            bank,
            task,
            latest=latest,
            retrain=retrain,
            dry_run=dry_run,
            data=data,
            sets=sets or (),
            model=model,
            device=device,
            trust_remote_code=trust_remote_code,
            progress=progress.step,
        )
    shown = [_dependents_table(report.dependents)] if report.dependents else []
    output.result(report, *shown, *_describe(report, dry_run=dry_run, retrain=retrain))
    if not report.done and not dry_run:
        raise InputError(
            f"{report.bank} was left as it is: later entries were trained on top of "
            f"{report.task!r}; --retrain trains them again"
        )


def _dependents_table(dependents: tuple[Dependent, ...]) -> object:
    rows = [
        (
            each.position,
            each.task,
            f"{each.changed} of {each.rows}" if each.rows else "–",
            "–" if each.difference is None else f"{each.difference:.3g}",
            "–" if each.retrained is None else f"{each.retrained:.3f}",
        )
        for each in dependents
    ]
    columns = (
        "entry", "task", "recorded rows answered otherwise", "largest change of a logit",
        "score when trained again",
    )  # fmt: skip
    return make_table("Trained on top of it", columns, rows)


def _describe(report: Forgotten, *, dry_run: bool, retrain: bool) -> list[str]:
    if not report.exact:
        return ["Without --retrain nothing would be deleted"] if dry_run and not retrain else []
    entries = ", ".join(map(str, report.positions))
    what = f"{report.task!r} (entry {entries}, {report.mode} mode)"
    lines = [
        f"{report.bank} would hold no byte of {what}. Nothing was changed."
        if dry_run
        else f"{report.bank} is now, file by file, the bank of a stream without {what}; check "
        f"with: cl-graft verify {quote(str(report.bank))}"
    ]
    if report.stay:
        verb = "would then be" if dry_run else "is now"
        lines.append(f"{report.task!r} {verb} answered by entry {report.stay[-1]}.")
    if report.labels:
        moved = ", ".join(f"{old} is {new}" for old, new in report.labels.items())
        lines.append(f"Task labels have no gaps: {moved}.")
    if report.traces:
        lines.append(f"These tell of it, too: {', '.join(map(str, report.traces))}.")
    return lines

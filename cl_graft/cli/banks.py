"""`add`, `inspect` and `verify`: what is done with a bank after it was learned."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cl_graft.cli.options import (
    As_json,
    Chosen,
    Device,
    Moved,
    Quiet,
    Sets,
    Text,
    Text_pair,
    Trusted,
    with_settings,
)
from cl_graft.cli.output import Output, apart, given, table
from cl_graft.cli.progress import meter

if TYPE_CHECKING:
    from cl_graft.banks.verify import VerifyReport
    from cl_graft.storage.repair import Repaired

__all__ = ["add_command", "inspect_command", "verify_command"]


def verify_command(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN_OR_BANK", help="A run of any strategy, or a bank.")
    ],
    model: Moved = None,
    device: Device = None,
    trust_remote_code: Trusted = False,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Prove that a bank answers every task with the bits it was learned with.

    Each task is made anew in this process, from the base model and the bank alone. Its weights
    must hash to what was recorded, and the recorded batch must get the recorded logits: bit for
    bit where threads, device and versions are the recorded ones, to a tolerance elsewhere. Files,
    settings, data and the base's checkpoint are compared with their hashes, also of runs that
    made no bank, and the bank with the one that the run's results name.

    Exit code: 0 nothing differs, 1 something does, 2 a file is damaged or cannot be read, or the
    base is another one.

    [b]Example[/b]: cl-graft verify first/grafting/seed0
    """
    from cl_graft.banks.verify import verify

    output = Output(quiet, as_json)
    with apart(), meter(output) as progress:
        report = verify(
            folder,
            model=model,
            device=device,
            trust_remote_code=trust_remote_code,
            progress=progress.phase,
        )
    rows = [
        (e.position, e.task, e.weights, e.recorded_batch, _difference(e.difference), e.run)
        for e in report.entries
    ]
    columns = ("entry", "task", "weights", "recorded logits", "largest difference", "run's logits")
    notes = sorted({line for entry in report.entries for line in entry.elsewhere})
    shown: list[object] = [table(str(report.folder), columns, rows)] if rows else []
    shown += _findings(report)
    if notes:
        shown.append(
            f"Recorded elsewhere ({'; '.join(notes)}): logits are compared to a tolerance of "
            f"{report.tolerance:g}, the weights bit for bit."
        )
    wrong = [entry.task for entry in report.entries if not entry.ok]
    if wrong:
        shown.append(f"DIFFERENT from the day they were learned: {', '.join(wrong)}")
    elif rows:
        shown.append(f"All {len(rows)} entries answer as on the day they were learned.")
    output.result({"ok": report.ok, **asdict(report)}, *shown)
    if not report.ok:
        raise typer.Exit(1)


def inspect_command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="BANK", help="A bank, a run of grafting, or the file of a single graft."
        ),
    ],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Delete what killed writers left, and list the entries that are whole."
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Show what a bank holds: tasks, regions, sizes. The model is not loaded.

    With --repair, put the bank's folder in order instead: files that nobody lists are deleted.
    Where entries or bank.json are damaged or missing, bank.json is written anew from the entries
    that are whole, and files of others are moved to removed/ in the bank. The results of the
    bank's run name the bank as it is from then on.

    Exit code: 0 shown, or repaired; 1 repaired, but an entry is lost; 2 it cannot be read.

    [b]Examples[/b]

      cl-graft inspect first/grafting/seed0/bank

      cl-graft inspect first/grafting/seed0/bank --repair
    """
    from cl_graft.banks.inspect import inspect_bank, inspect_graft, repair_folder

    output = Output(quiet, as_json)
    if repair:
        repaired = repair_folder(path)
        output.result(repaired, *_repaired(repaired))
        if repaired.faults:
            raise typer.Exit(1)
        return
    if path.is_file():
        graft = inspect_graft(path)
        output.result(
            graft,
            f"{graft.path}: graft of {graft.task!r}, {graft.coordinates:,} of {graft.total:,} "
            f"coordinates ({graft.density:.3%}), {graft.dtype}, {graft.bytes:,} bytes\n"
            f"base {graft.model} ({graft.fingerprint[:12]}…)",
        )
        return
    found = inspect_bank(path)
    rows = [
        (
            entry.position,
            entry.task,
            f"{entry.label}{'' if entry.answers else ' (replaced)'}",
            ", ".join(entry.label_names) or "number",
            f"{entry.claimed:,}",
            f"{entry.density:.3%}",
            f"{entry.owned:,}",
            f"{entry.lost:.1%}",
            f"{entry.bytes:,}",
            f"{entry.head_bytes:,}",
            _score(entry.metadata.get("trained_dev")),
        )
        for entry in found.entries
    ]
    columns = (
        "entry", "task", "label", "answers", "claimed", "density", "owned", "lost", "bytes",
        "of them head", "dev",
    )  # fmt: skip
    overlap = [
        (entry.task, *("–" if value is None else f"{value:.1%}" for value in row))
        for entry, row in zip(found.entries, found.overlap, strict=True)
    ]
    names = [entry.task for entry in found.entries]
    shown: list[object] = [
        f"base {found.model} ({found.fingerprint[:12]}…, {found.dtype}), {found.mode} mode",
        f"{found.owned:,} of {found.coordinates:,} coordinates owned, {found.bytes:,} bytes",
        table(str(found.bank), columns, rows),
    ]
    if len(names) > 1:
        shown.append(table("|γ row ∩ γ column| / |γ column|", ("", *names), overlap))
    output.result(found, *shown)


@with_settings(without=("tasks", "model", "device", "trust_remote_code"))
def add_command(
    chosen: Chosen,
    bank: Annotated[Path, typer.Argument(metavar="BANK", help="A bank, or a run of grafting.")],
    task: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A preset or built-in task, a path, or a hub name.",
            show_default=False,
        ),
    ],
    text: Text = None,
    text_pair: Text_pair = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the label.", show_default=False)
    ] = None,
    sets: Sets = None,
    model: Moved = None,
    device: Device = None,
    trust_remote_code: Trusted = False,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Teach the next task to a bank. Earlier tasks keep every bit of their answers.

    Nothing is needed but the bank, its base model and the new data. What is not said here is as
    in the bank's own run. The name of a task that the bank knows makes a new entry that answers
    it from now on; the earlier one stays as it is. If that task was learned before from the same
    data with the same settings, nothing is done.

    [b]Examples[/b]

      cl-graft add first/grafting/seed0/bank --task paraphrase --shots 256

      cl-graft add my_bank --data tickets.csv --task tickets --text body --label queue
    """
    from cl_graft.banks.add import add_task
    from cl_graft.experiments.config import nested

    output = Output(quiet, as_json)
    columns = given(text=text, text_pair=text_pair, label=label)
    with apart(), meter(output) as progress:
        added = add_task(
            bank,
            task,
            model=model,
            columns=columns,
            settings=nested(json.loads(json.dumps(chosen.values, default=str))),
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
        f"test {added.metric} {_score(added.test)} on {added.test_rows} rows",
        *added.notes,
        f"The {added.position} earlier entries were not touched; check with: "
        f"cl-graft verify {added.bank}",
    )


def _repaired(found: Repaired) -> list[str]:
    """Say in sentences what was done to a bank's folder."""
    lines = [f"{found.bank}: {found.entries} entries"]
    if found.deleted:
        lines.append(f"Deleted, as nobody listed them: {', '.join(found.deleted)}")
    if found.rebuilt:
        lines.append("bank.json was written anew from the entries that are whole.")
    if found.removed:
        lines.append(f"Moved to {found.bank}/removed: {', '.join(found.removed)}")
    lines += [f"LOST: {sentence}" for sentence in found.faults]
    if not (found.deleted or found.rebuilt):
        lines.append("Nothing had to be done.")
    return lines


def _findings(report: VerifyReport) -> list[str]:
    """Say in a line a kind what was found beside the entries, the faults last."""
    kinds = {
        "same": "As recorded",
        "other here": "Other than recorded, which is no fault",
        "not recorded": "Not recorded",
        "not checked": "Not checked",
        "differs": "DIFFERENT from what was recorded",
    }
    lines: list[str] = []
    for outcome, words in kinds.items():
        found = [finding for finding in report.findings if finding.outcome == outcome]
        if found:
            said = (f"{f.what} ({f.detail})" if f.detail else f.what for f in found)
            lines.append(f"{words}: {', '.join(said)}")
    return lines


def _difference(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _score(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "–"

"""The command `verify`: a bank or a run compared with what was recorded of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cl_graft.cli.options import AsJson, Device, MovedModel, Quiet, TrustRemoteCode, argument
from cl_graft.cli.output import Output, make_table, redirect_prints
from cl_graft.cli.progress import show_progress

if TYPE_CHECKING:
    from cl_graft.banks.verify import VerifyReport


def verify_command(
    folder: Annotated[Path, argument("RUN_OR_BANK", "A run of any strategy, or a bank.")],
    model: MovedModel = None,
    device: Device = None,
    trust_remote_code: TrustRemoteCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Prove that a bank answers every task with the bits that it was learned with.

    Each task is rebuilt from the base model and the bank alone. Its weights must have the recorded
    hash, and the recorded batch must get the recorded logits: bit for bit if threads, device
    and versions are the recorded ones, otherwise within a tolerance. Files, settings, data and the
    base's checkpoint are compared with their hashes, also those of runs without a bank, and the
    bank with the one that the run's results name.

    Exit code: 0 nothing differs; 1 something differs; 2 a file is damaged or cannot be read, or
    the base is another one.

    [b]Example[/b]: cl-graft verify first/grafting/seed0
    """
    from cl_graft.banks.verify import verify

    output = Output(quiet, as_json)
    with redirect_prints(), show_progress(output) as progress:
        report = verify(
            folder,
            model=model,
            device=device,
            trust_remote_code=trust_remote_code,
            progress=progress.phase,
        )
    rows = [
        (
            e.position,
            e.task,
            e.weights,
            e.recorded_batch,
            "–" if e.difference is None else f"{e.difference:g}",
            e.run,
        )
        for e in report.entries
    ]
    columns = ("entry", "task", "weights", "recorded logits", "largest difference", "run's logits")
    notes = sorted({line for entry in report.entries for line in entry.elsewhere})
    shown: list[object] = [make_table(str(report.folder), columns, rows)] if rows else []
    shown += _describe_checks(report)
    if notes:
        shown.append(
            f"Recorded elsewhere ({'; '.join(notes)}): logits are compared to a tolerance of "
            f"{report.tolerance:g}, the weights bit for bit."
        )
    wrong = [entry.task for entry in report.entries if not entry.ok]
    if wrong:
        shown.append(f"DIFFERENT from the day they were learned: {', '.join(wrong)}")
    elif rows:
        count = f"All {len(rows)} entries answer" if len(rows) > 1 else "The only entry answers"
        shown.append(f"{count} as on the day of learning.")
    output.result({"ok": report.ok, **asdict(report)}, *shown)
    if not report.ok:
        raise typer.Exit(1)


def _describe_checks(report: VerifyReport) -> list[str]:
    """Describe the checks beside the entries, a line for each kind of outcome, faults last."""
    kinds = {
        "same": "As recorded",
        "other here": "Other than recorded, which is no fault",
        "not recorded": "Not recorded",
        "not checked": "Not checked",
        "differs": "DIFFERENT from what was recorded",
    }
    lines: list[str] = []
    for outcome, words in kinds.items():
        checks = [check for check in report.checks if check.outcome == outcome]
        said = [f"{c.what} ({c.detail})" if c.detail else c.what for c in checks]
        lines += [f"{words}: {', '.join(said)}"] if said else []
    return lines

"""The command `doctor`: the state of an installation, with a remedy for each fault."""

from __future__ import annotations

import typer

from cl_graft.cli.options import AsJson
from cl_graft.cli.output import Output, make_table


def doctor_command(as_json: AsJson = False) -> None:
    """Check Python, packages, devices, models and the hub.

    Exit code: 0 no fault; 1 something is missing or broken without which nothing works.

    [b]Example[/b]: cl-graft doctor
    """
    from cl_graft.lab.experiments.installation import check_installation

    checks = check_installation()
    faults = [check for check in checks if check.state == "fault"]
    notes = [check for check in checks if check.state == "note"]
    shown = [(f.subject, f.found, f.state) for f in checks]
    remedies = [f"{f.subject}: {f.remedy}" for f in (*faults, *notes) if f.remedy]
    Output(as_json=as_json).result(
        checks,
        make_table("This installation", ("what", "found", "state"), shown),
        *remedies,
        f"{len(faults)} fault(s), {len(notes)} note(s)",
    )
    if faults:
        raise typer.Exit(1)

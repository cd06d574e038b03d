"""The command `doctor`: what is missing or broken in this installation."""

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
    faults, notes = (
        [check for check in checks if check.state == state] for state in ("fault", "note")
    )
    Output(as_json=as_json).result(
        checks,
        make_table(
            "This installation",
            ("what", "found", "state"),
            [(check.subject, check.found, check.state) for check in checks],
        ),
        *(f"{check.subject}: {check.remedy}" for check in (*faults, *notes) if check.remedy),
        f"{len(faults)} fault(s), {len(notes)} note(s)",
    )
    if faults:
        raise typer.Exit(1)

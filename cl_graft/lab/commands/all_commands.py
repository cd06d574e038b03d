"""All commands of the laboratory by name: experiments, their reports, and what can be chosen."""

from collections.abc import Callable, Mapping

from cl_graft.lab.commands.compare import compare_command
from cl_graft.lab.commands.demo import demo_command
from cl_graft.lab.commands.doctor import doctor_command
from cl_graft.lab.commands.init import init_command
from cl_graft.lab.commands.localize import localize_command
from cl_graft.lab.commands.plan import plan_command
from cl_graft.lab.commands.report import report_command
from cl_graft.lab.commands.run import run_command
from cl_graft.lab.commands.strategies_and_streams import strategies_command, streams_command

COMMANDS: Mapping[str, Callable[..., None]] = {
    "demo": demo_command,
    "init": init_command,
    "run": run_command,
    "compare": compare_command,
    "report": report_command,
    "plan": plan_command,
    "localize": localize_command,
    "strategies": strategies_command,
    "streams": streams_command,
    "doctor": doctor_command,
}
"""The commands by name, in the order of the help."""

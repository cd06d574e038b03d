"""Options are made from the settings, and are the same in every command that trains."""

import pytest
import typer

from cl_graft.cli.app import app
from cl_graft.runtime.settings import list_fields
from cl_graft.settings.parts import PARTS

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
ELSEWHERE = {
    "add": {
        *("--stream", "--tasks", "--mode", "--scenario", "--classes-per-experience"),
        *("--family", "--pooling", "--dtype", "--precision"),
    },
    "demo": {"--stream"},
    "localize": {
        *("--tasks", "--scenario", "--classes-per-experience", "--mode", "--mask-candidates")
    },
    "plan": {"--stream", "--tasks", "--model"},
}
"""Options that a command has as an argument or by another name, or that others decide for it."""


def options_of(command: str) -> dict[str, str]:
    return {
        name: option.help or ""
        for option in COMMANDS[command].params
        for name in option.opts
        if name.startswith("--")
    }


@pytest.mark.parametrize("command", ["compare", "demo", "add", "localize", "plan"])
def test_every_command_that_trains_has_the_options_of_run(command):
    own = {"--strategy", "--seed", "--resume", "--out", "--quiet", "--json", "--help", "--set"}
    shared = set(options_of("run")) - own
    assert shared - ELSEWHERE.get(command, set()) <= set(options_of(command))
    assert "--set" in options_of(command)


def test_an_option_says_what_the_setting_says():
    said = options_of("run")["--density"]
    field = list_fields(PARTS["grafting"])["density"]
    assert said == f"{field.description} Default: {field.default}."


def test_add_tells_no_default_as_its_settings_are_those_of_the_bank():
    assert not [option for option, said in options_of("add").items() if "Default:" in said]

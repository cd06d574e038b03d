"""The help of the command line, a page for each command.

A line `<!-- help: cl-graft NAME -->` of a page asks for what a terminal shows of a command's help.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from markdown_pieces import table

HELP = re.compile(r"^<!-- help: (cl-graft[a-z ]*) -->$", re.MULTILINE)
"""A line that asks for the help of a command."""


def commands() -> str:
    """The commands with a link to the page of each."""
    texts = {name.removeprefix("cl-graft").strip(): text for name, text in help_texts().items()}
    return table(
        ("command", "what it does"),
        (
            (f"[`cl-graft {name}`](commands/{name}.md)", text.split("\n\n")[1].strip())
            for name, text in texts.items()
            if name
        ),
    )


def show_help(text: str) -> str:
    """Put the help of commands in the place of the lines that ask for it."""
    return HELP.sub(lambda found: f"```text\n{help_texts()[found[1]]}\n```", text)


@cache
def help_texts() -> dict[str, str]:
    """Return the help of `cl-graft` and of each of its commands, 100 columns wide."""
    import typer
    from typer import rich_utils
    from typer.testing import CliRunner

    from cl_graft.cli.app import app

    runner = CliRunner()
    widths = rich_utils.MAX_WIDTH, rich_utils.FORCE_TERMINAL
    rich_utils.MAX_WIDTH, rich_utils.FORCE_TERMINAL = 100, False
    texts = {}
    try:
        group: Any = typer.main.get_command(app)
        for command in ("", *group.commands):
            arguments = [*command.split(), "--help"]
            name = f"cl-graft {command}".strip()
            outcome = runner.invoke(app, arguments, prog_name="cl-graft", catch_exceptions=False)
            lines = (line.rstrip() for line in outcome.output.strip().splitlines())
            texts[name] = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))
    finally:
        rich_utils.MAX_WIDTH, rich_utils.FORCE_TERMINAL = widths
    return texts

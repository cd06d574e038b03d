"""The program `cl-graft`: its commands, its help, and how it reports errors.

An error that a user can correct (a name, a file, a setting) is one sentence on stderr without a
traceback, and the exit code is 2.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Annotated, TextIO

import typer

import cl_graft
from cl_graft.cli.add import add_command
from cl_graft.cli.exchange import export_command, import_command
from cl_graft.cli.forget import forget_command
from cl_graft.cli.inspect import inspect_command
from cl_graft.cli.output import escape_unencodable
from cl_graft.cli.predict import predict_command
from cl_graft.cli.verify import verify_command
from cl_graft.errors import BankError, DivergedError, InputError, OutOfMemory
from cl_graft.runtime.escaping import for_terminal
from cl_graft.runtime.signals import Stopped, stoppable

_HELP = """Teach a language model one text task after the other, and forget nothing.

The pretrained model stays frozen. Every task is stored as a [b]graft[/b]: new values for a small
region of its weights. Grafts are kept in a [b]bank[/b], a folder that answers every task with the
bits it was learned with.

[b]Start here[/b]

  cl-graft demo                          see it work on built-in tasks

  cl-graft compare --tasks scope,topic --out first

  cl-graft report first                  see it as a page, figures and tables

  cl-graft verify first/grafting/seed0   prove that nothing was forgotten

  cl-graft init mydata                   write a config for your own data
"""

_EPILOG = """[b]Exit codes[/b]: 0 success; 1 verify found a difference, doctor found a fault, or a
run of a comparison failed; 2 the command cannot be carried out, and one sentence says why; 130 and
143 stopped by Ctrl-C and SIGTERM: progress is saved, and one sentence says how to continue."""

_LONGEST = 2000


def _join_lines(text: str | None) -> str:
    """Return a text with one line per paragraph: the terminal breaks lines to its width."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(text or ""))


app = typer.Typer(
    name="cl-graft",
    help=_join_lines(_HELP),
    epilog=_join_lines(_EPILOG),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_BANK_COMMANDS = {
    "predict": predict_command,
    "add": add_command,
    "forget": forget_command,
    "verify": verify_command,
    "inspect": inspect_command,
    "export": export_command,
    "import": import_command,
}
_LABORATORY = "cl_graft.lab.commands.all_commands"
"""Found by its name: nothing outside the laboratory imports it."""

for _panel, _commands in (
    ("Experiments", import_module(_LABORATORY).COMMANDS),
    ("Banks", _BANK_COMMANDS),
):
    for _name, _command in _commands.items():
        _shown = app.command(_name, help=_join_lines(_command.__doc__), rich_help_panel=_panel)
        _shown(_command)


def main(commands: typer.Typer = app, *, name: str = "cl-graft") -> None:
    """Run a command line and exit with its code; the name begins every line about an error."""
    escape_unencodable()
    _set_up_logging()
    try:
        with stoppable():
            commands(prog_name=name)
    except Stopped as stopped:
        _tell(f"{name}: {_one_line(str(stopped))}")
        raise SystemExit(128 + stopped.signal) from None
    except Exception as error:
        sentence = _describe_error(error)
        if sentence is None:
            raise
        _tell(f"{name}: {_one_line(sentence)}")
        raise SystemExit(2) from None


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"cl-graft {cl_graft.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    del version


def _describe_error(error: Exception) -> str | None:
    """Return the sentence of an error that a user can correct; None for any other error."""
    if isinstance(error, InputError | BankError | DivergedError | OutOfMemory):
        return str(error)
    if isinstance(error, OSError):
        path = f"{error.filename}: " if error.filename else ""
        return f"{path}{error.strerror or error}"
    if type(error).__module__.startswith("pydantic"):
        return "; ".join(line.strip() for line in str(error).splitlines()[:3])
    return None


def _tell(line: str) -> None:
    """Write a line to stderr; one that is closed, or full, changes no exit code."""
    with suppress(OSError):
        typer.echo(line, err=True)


def _one_line(text: str) -> str:
    """Return a text as one line of at most `_LONGEST` characters, without control characters."""
    shown, half = for_terminal(text).replace("\n", "\\n"), _LONGEST // 2
    return shown if len(shown) <= _LONGEST else f"{shown[:half]} … {shown[-half:]}"


class _Once(logging.StreamHandler[TextIO]):
    """Writes a record as one line, once; an error that a user can correct has no traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))
        self._written: set[str] = set()

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return _one_line(record.getMessage())
        if not isinstance(error, Exception) or (sentence := _describe_error(error)) is None:
            return super().format(record)
        return _one_line(f"{record.getMessage()}: {sentence}")

    def filter(self, record: logging.LogRecord) -> bool:
        line = self.format(record)
        new = line not in self._written
        self._written.add(line)
        return new


def _set_up_logging() -> None:
    """Write warnings and log records of this package to stderr, each once, as a plain line."""
    logging.basicConfig(level=logging.WARNING, handlers=[_Once()])
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", category=UserWarning, message=".*graft")

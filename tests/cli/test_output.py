"""What a file of somebody else says cannot steer the terminal that it is shown on."""

import errno
import io
import json
import logging
import sys
from pathlib import Path

import pytest
import typer
from tiny_runs import cl_graft

from cl_graft import InputError
from cl_graft.cli.app import _Once as Once
from cl_graft.cli.app import main
from cl_graft.cli.output import Output, escape_unencodable, make_table
from cl_graft.runtime.escaping import for_terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größe 日本 🙂\n", "plain größe 日本 🙂\n"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb\x07", "a\\rb\\x07"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u200bb\u200e", "a\\u200bb\\u200e"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_control_characters_are_written_as_escapes(text, shown):
    assert for_terminal(text) == shown


def test_results_tables_and_notes_hold_none(capsys):
    evil = "\x1b]0;title\x07"
    Output().result({}, f"task {evil}", make_table(evil, ["task"], [[evil]]))
    Output().note(evil)
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert "\\x1b]0;title" in told.out
    assert "\\x1b]0;title" in told.err


def test_a_name_of_a_column_is_no_markup(capsys):
    Output().result({}, make_table("", ["[red]x[/red]"], [["1"]]))
    assert "[red]x[/red]" in capsys.readouterr().out


VERSION_1 = Path(__file__).parents[1] / "storage" / "fixtures" / "version1" / "bank"


def test_a_terminal_of_few_characters_gets_escapes_and_no_traceback():
    told = cl_graft("inspect", VERSION_1, PYTHONIOENCODING="ascii:strict")
    assert told.code == 0, told
    assert "Traceback" not in told.err
    assert r"\u2026, float32)" in told.out


def test_json_for_a_terminal_of_few_characters_is_json(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    escape_unencodable()
    Output(as_json=True).result({"task": "größer γ 🙂"})
    sys.stdout.flush()
    assert json.loads(written.getvalue().decode("ascii")) == {"task": "größer γ 🙂"}


def test_a_warning_is_written_once(capsys):
    handler = Once()
    for text in ("the disk is full", "another", "the disk is full"):
        handler.handle(logging.LogRecord("cl_graft", logging.WARNING, "", 0, text, None, None))
    assert capsys.readouterr().err.splitlines() == ["the disk is full", "another"]


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stream", [None, FullDisk()], ids=["closed", "full"])
def test_a_stderr_that_takes_nothing_changes_no_exit_code(monkeypatch, stream):
    failing = typer.Typer()

    @failing.command()
    def fail():
        raise InputError("no such task")

    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "argv", ["cl-graft"])
    with pytest.raises(SystemExit) as stopped:
        main(failing)
    assert stopped.value.code == 2


def test_a_long_table_has_a_line_a_row_and_no_frame(capsys):
    """A frame around a thousand rows takes seconds to lay out."""
    rows = [(f"task {number}", f"{number:,}", "a, b" * 50) for number in range(1000)]
    Output().result({}, make_table("tasks", ("name", "number", "answers"), rows))
    title, head, first, *_, last = capsys.readouterr().out.splitlines()
    assert (title, head) == ("tasks", "name      number  answers")
    assert first == f"task 0         0  {'a, b' * 50}"
    assert last.split("  ")[0] == "task 999"

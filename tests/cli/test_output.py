"""What a file of somebody else says cannot steer the terminal that it is shown on."""

import pytest

from cl_graft.cli.output import Output, table, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größe 日本 🙂\n", "plain größe 日本 🙂\n"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb\x07", "a\\rb\\x07"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_control_characters_are_written_as_escapes(text, shown):
    assert visible(text) == shown


def test_results_tables_and_notes_hold_none(capsys):
    evil = "\x1b]0;title\x07"
    Output().result({}, f"task {evil}", table(evil, ["task"], [[evil]]))
    Output().note(evil)
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert "\\x1b]0;title" in told.out
    assert "\\x1b]0;title" in told.err

"""The scripts of the documentation run and print what their pages say."""

import runpy
import sys

from docs.pages import DOCS


def test_a_chat_model_learns_two_skills_and_keeps_the_first(
    tiny_chat, tmp_path, monkeypatch, capsys
):
    script = DOCS / "examples" / "chat_two_skills.py"
    options = ["--model", str(tiny_chat), "--out", str(tmp_path / "skills"), "--steps", "2"]
    monkeypatch.setattr(sys, "argv", [str(script), *options])
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert "support answers as before commands was learned: True" in said
    assert said.count("(right: ") == 10

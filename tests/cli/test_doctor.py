"""`cl-graft doctor` says what is there, what is not, and what to do about it."""

import json

import pytest
from typer.testing import CliRunner
from warm_processes import printed_by

from cl_graft.cli.app import app
from cl_graft.lab.experiments.installation import check_installation

WITHOUT_A_HUB = """
import sys
from huggingface_hub import constants
from cl_graft.cli import main

# As if HF_ENDPOINT had named it when it was imported.
nobody, url = "http://127.0.0.1:9", constants.HUGGINGFACE_CO_URL_TEMPLATE
constants.HUGGINGFACE_CO_URL_TEMPLATE = url.replace(constants.ENDPOINT, nobody)
constants.ENDPOINT = nobody
sys.argv = ["cl-graft", "doctor", "--json"]
main()
"""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    findings = json.loads(printed_by(WITHOUT_A_HUB))
    return {check["subject"]: check for check in findings}


def test_a_sound_installation_has_no_fault(found):
    assert {check["state"] for check in found.values()} <= {"ok", "note"}
    assert found["torch"]["state"] == "ok"
    assert "threads" in found["processor"]["found"]


def test_a_silent_hub_is_a_note_with_its_remedy(found):
    assert found["Hugging Face hub"]["state"] == "note"
    assert "--model" in found["Hugging Face hub"]["remedy"]
    assert "refused" in found["Hugging Face hub"]["found"]


def test_what_is_not_ok_has_a_remedy(found):
    assert all(check["remedy"] for check in found.values() if check["state"] != "ok")


def test_a_package_that_is_too_old_is_a_fault(tmp_path, monkeypatch):
    old = tmp_path / "numpy-0.1.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("cl_graft.lab.experiments.installation.explain_silent_hub", lambda: "")
    ran = CliRunner().invoke(app, ["doctor"])
    assert ran.exit_code == 1, ran.output
    assert "0.1, but >=2 is needed" in " ".join(ran.stdout.split())
    assert "numpy: pip install 'numpy>=2'" in ran.stdout


def test_a_hub_that_answers_is_ok(monkeypatch):
    monkeypatch.setattr("cl_graft.lab.experiments.installation.explain_silent_hub", lambda: "")
    (hub,) = [check for check in check_installation() if check.subject == "Hugging Face hub"]
    assert (hub.state, hub.remedy) == ("ok", "")

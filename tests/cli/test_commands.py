"""The commands as users call them, in processes of their own."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from configs import sets
from configs import settings as settings_by_part
from tiny_runs import Told, cl_graft, cl_graft_each, file_hashes

import cl_graft as package
from cl_graft import InputError, load_bank
from cl_graft.cli.app import app
from cl_graft.storage import StoredGraft, save_graft
from cl_graft.storage.files import dump_json, load_json

COMMANDS = [command.name or "" for command in app.registered_commands]


def test_help_is_quick_and_lists_every_command_and_the_exit_codes():
    told = cl_graft("--help", imports=True, PYTHONPROFILEIMPORTTIME="1")
    assert told.code == 0
    for command in COMMANDS:
        assert f" {command} " in told.out
    assert "Exit codes" in told.out
    loaded = {line.rsplit("|", 1)[-1].strip() for line in told.err.splitlines()}
    assert "cl_graft.cli" in loaded
    assert not loaded & {"avalanche", "transformers", "datasets", "cl_graft.lab.experiments.run"}


def test_every_command_explains_itself_with_an_example():
    *helps, version = cl_graft_each([*([command, "--help"] for command in COMMANDS), ["--version"]])
    for command, told in zip(COMMANDS, helps, strict=True):
        assert told.code == 0
        assert f"cl-graft {command}" in told.out
        assert "Example" in told.out
    assert version.out == f"cl-graft {package.__version__}\n"


def test_the_shell_completes_commands_and_options():
    for words, expected in (("cl-graft ver", "verify"), ("cl-graft compare --dens", "--density")):
        told = cl_graft(
            _CL_GRAFT_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" "))
        )
        assert told.out.split() == [expected]


def test_nothing_is_coloured_where_no_terminal_is(bank):
    for arguments in (["inspect", bank], ["--help"], ["compare", "--help"]):
        assert "\x1b" not in cl_graft(*arguments, NO_COLOR="").out


def test_a_comparison_shows_r_of_every_strategy_and_where_its_results_are(compared):
    out, told = compared
    for strategy in ("grafting", "naive", "independent"):
        assert f"{strategy}, seed 0: score on each task after each task" in told.out
        assert (out / strategy / "seed0" / "results.json").is_file()
    assert "score on each task after each task" in told.out
    assert (out / "summary.md").is_file()


def test_long_phases_are_told_on_stderr_only(compared):
    _, told = compared
    assert "[1/6] grafting seed 0 · scope · dense run: 1/1" in told.err
    assert "[4/6] naive seed 0 · topic · training: 4/4" in told.err
    assert "dense run" not in told.out


def test_a_bar_with_the_time_left_is_shown_on_a_terminal(bank):
    told = cl_graft("verify", bank, TTY_COMPATIBLE="1")
    assert "━" in told.err
    assert "left" in told.err


def test_verify_exits_with_1_when_an_answer_changed(bank, tmp_path):
    run = shutil.copytree(bank.parent, tmp_path / "run")
    results = load_json(
        (run / "results.json").read_bytes(), format="cl-graft-results", name="results"
    )
    results["logit_hashes"]["scope"]["end"] = "0" * 64
    (run / "results.json").write_bytes(dump_json(results, format="cl-graft-results"))
    told = cl_graft("verify", run)
    assert told.code == 1
    assert "DIFFERENT from the day they were learned: scope" in told.out


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("session")


@pytest.fixture(scope="module")
def session(
    compared: tuple[Path, Told], bank: Path, settings: tuple[str, ...], tiny_bert: Path, there: Path
) -> dict[str, Told]:
    """What a long session of commands, in one new process, answered to each."""
    grown, graft = shutil.copytree(bank, there / "bank"), there / "one.safetensors"
    loaded = load_bank(bank)
    save_graft(StoredGraft(loaded.entries[0].owned, loaded.base, "scope"), graft)
    lines = [f"{['wet', 'fine'][n % 2]} day {n},{['rain', 'sun'][n % 2]}" for n in range(60)]
    (there / "tickets.csv").write_text("\n".join(["body,queue", *lines]) + "\n")
    stream = settings_by_part({
        "tasks": ["topic"], "model": str(tiny_bert), "shots": 8, "steps": 4,
        "max_length": 24, "max_test": 20, "evaluations": 1, "device": "cpu",
        "strategies": ["naive", "grafting"], "seeds": [3, 4],
    })  # fmt: skip
    config = there / "stream.yaml"
    config.write_text(yaml.safe_dump(stream))
    small = sets({
        "model": tiny_bert, "steps": 3, "shots": 8, "max_test": 20, "tasks": "scope,topic",
        "mask_steps": 2, "mask_batch": 16, "max_length": 24, "evaluations": 1, "device": "cpu",
    })  # fmt: skip
    (there / "mixed.csv").write_text("text,task\nIt rains.,topic\nIt was dull.,scope\n")
    commands: dict[str, list[object]] = {
        "predict": ["predict", bank.parent, "It was a delight.", "Bad.", "--task", "scope"],
        "predict file": ["predict", bank, "--file", there / "mixed.csv", "--json", "-q"],
        "verify": ["verify", bank.parent, "--json", "--quiet"],
        "again": [
            "compare", "--tasks", "scope,topic", "--model", tiny_bert, *settings,
            "--out", compared[0], "--json", "--quiet",
        ],
        "inspect": ["inspect", bank],
        "inspect json": ["inspect", bank, "--json"],
        "inspect graft": ["inspect", graft],
        "add": ["add", grown, "--task", "answered", "--json", "--quiet"],
        "add file": [
            "add", grown, "--task", "tickets", "--data", there / "tickets.csv",
            "--text", "body", "--label", "queue",
        ],
        "verify grown": ["verify", grown, "--quiet"],
        "run": ["run", config, "--out", there / "run", "--set", "fine_tuning.steps=3", "--json"],
        "compare config": [
            "compare", config, "--strategies", "naive", "--seeds", "1,2", "--steps", "2",
            "--out", there / "compare", "--json", "-q",
        ],
        "demo": ["demo", "--out", there / "demo", *small, "-q"],
        "no bank": ["demo", "--strategies", "naive", "--out", there / "no", *small, "-q", "--json"],
    }  # fmt: skip
    told = dict(zip(commands, cl_graft_each(list(commands.values())), strict=True))
    for name, answer in told.items():
        assert answer.code == 0, (name, answer)
    return told


def test_verify_agrees(session):
    assert session["verify"].json["ok"] is True
    assert [entry["run"] for entry in session["verify"].json["entries"]] == ["same bits"] * 2


@pytest.mark.parametrize("name", ["verify", "again", "add", "compare config", "demo"])
def test_quiet_leaves_nothing_on_stderr(session, name):
    assert session[name].err == ""


def test_the_same_comparison_is_read_and_not_computed_again(session):
    runs = session["again"].json["runs"]
    assert [run["strategy"] for run in runs] == ["grafting", "naive", "independent"]
    assert session["again"].seconds < 20


def test_predict_answers_each_text_and_says_what_confidence_means(session):
    lines = [line.split("\t") for line in session["predict"].out.splitlines()]
    assert [line[2] for line in lines] == ["It was a delight.", "Bad."]
    assert {line[0] for line in lines} <= {"in_scope", "out_of_scope"}
    assert all(0.5 <= float(line[1]) <= 1 for line in lines)
    assert "scope: confidence is calibrated (temperature" in session["predict"].err


def test_predict_writes_a_json_object_a_line_in_the_order_of_the_file(session, there):
    lines = [json.loads(line) for line in session["predict file"].out.splitlines()]
    assert [line["task"] for line in lines] == ["topic", "scope"]
    assert [line["place"] for line in lines] == [f"{there / 'mixed.csv'}:{n}" for n in (2, 3)]
    for line in lines:
        assert line["calibrated"] is True
        assert line["confidence"] == line["probabilities"][line["label"]]
    assert session["predict file"].err == ""


def test_predict_without_a_task_lists_those_of_the_bank(bank):
    for given in (["It was a delight."], []):
        told = cl_graft("predict", bank, *given, stdin="One.\n")
        assert told.code == 2
        assert "say which task is to answer, with --task; the bank holds scope" in told.err


def test_predict_reads_stdin(bank):
    told = cl_graft("predict", bank, "--task", "scope", "--json", stdin="One.\n\nTwo.\n")
    assert [json.loads(line)["place"] for line in told.out.splitlines()] == ["stdin:1", "stdin:3"]


def test_inspect_shows_the_bank_in_a_line_for_each_entry_and_a_single_graft(session):
    lines = session["inspect"].out.splitlines()
    assert [line.split("│")[2].strip() for line in lines[6:-1]] == ["scope", "topic"]
    assert "│ 5: " in lines[7]
    assert [entry["region_size"] for entry in session["inspect json"].json["entries"]] == [171, 171]
    said = "graft of 'scope', 171 of 17,088 coordinates (1.001%)"
    assert said in session["inspect graft"].out


def test_add_teaches_tasks_and_leaves_the_others_alone(session, bank, there):
    assert (session["add"].json["task"], session["add"].json["position"]) == ("answered", 2)
    assert "entry 3, task 'tickets' (label 3)" in session["add file"].out
    assert "tickets · training: 4/4" in session["add file"].err
    grown = file_hashes(there / "bank" / "entries")
    assert file_hashes(bank / "entries").items() <= grown.items()
    assert len(grown) == 4
    assert "All 4 entries answer" in session["verify grown"].out


def test_run_takes_the_first_strategy_and_seed_of_its_config(session, there):
    result = session["run"].json
    assert (result["strategy"], result["seed"]) == ("naive", 3)
    assert (there / "run" / "naive" / "seed3" / "results.json").is_file()
    assert result["schedules"]["topic"]["steps"] == 3


def test_options_go_before_the_config_file(session):
    result = session["compare config"].json
    assert [(run["strategy"], run["seed"]) for run in result["runs"]] == [
        ("naive", 1),
        ("naive", 2),
    ]
    assert result["comparison"]["strategies"]["naive"]["average_accuracy"]["n"] == 2


def test_the_demo_names_the_extra_that_holds_all_it_needs(monkeypatch):
    from cl_graft.lab.commands.demo import refuse_missing_packages
    from cl_graft.settings.presets import DEMO

    strategies = DEMO["comparison"]["strategies"]
    refuse_missing_packages(strategies)
    monkeypatch.setitem(sys.modules, "peft", None)  # as if not installed
    with pytest.raises(InputError, match=r"package peft: .*; .* pip install 'cl-graft\[demo\]'$"):
        refuse_missing_packages(strategies)


def test_the_demo_compares_and_shows_what_its_bank_can_do(session, there):
    shown = session["demo"].out
    for strategy in ("grafting", "lora", "naive"):
        assert re.search(rf"\b{strategy} +│", shown)
    assert re.search(r"verify: (\d) of \1 tasks answer with the bits with which they were", shown)
    assert re.search(r"switch: the loaded model changes from task to task in [\d.]+ ms", shown)
    assert re.search(r"add: entailment was learned in .*; no earlier file changed\.", shown)
    assert re.search(r"forget: entailment was deleted in .*; every file is as before\.", shown)
    assert (there / "demo" / "scores.png").is_file()
    assert session["no bank"].json["verified"] is None

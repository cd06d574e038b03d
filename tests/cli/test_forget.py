"""`cl-graft forget` as its users meet it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import Told, cl_graft_each

from cl_graft import load_bank, save_bank


@pytest.fixture(scope="module")
def told(bank: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    mine = shutil.copytree(bank.parent, tmp_path_factory.mktemp("forgetting") / "run")
    versions = mine.parent / "versions"
    entries = load_bank(bank).entries
    again = replace(entries[-1], recorded_batch=None)
    save_bank(replace(load_bank(bank), mode="isolated", entries=(*entries, again)), versions)
    commands: dict[str, list[object]] = {
        "dry": ["forget", mine, "topic", "--dry-run"],
        "refused": ["forget", mine, "scope", "--quiet"],
        "unknown": ["forget", mine, "scop"],
        "done": ["forget", mine, "topic", "--json", "--quiet"],
        "verify": ["verify", mine, "--quiet"],
        "position": ["forget", versions, "1", "--dry-run", "--json", "--quiet"],
        "latest": ["forget", versions, "topic", "--latest", "--json", "--quiet"],
    }
    return dict(zip(commands, cl_graft_each(list(commands.values())), strict=True))


def test_a_dry_run_says_what_would_become_of_the_bank(told):
    assert told["dry"].code == 0
    assert "would hold no byte of 'topic' (entry 1, prefix mode)" in told["dry"].out
    assert "These tell of it, too:" in told["dry"].out


def test_what_stands_on_a_task_is_shown_and_the_bank_left_as_it_is(told):
    refused = told["refused"]
    assert refused.code == 2
    assert "Trained on top of it" in refused.out
    assert "was left as it is" in refused.err
    assert "--retrain trains them again" in refused.err
    assert refused.err.count("\n") == 1


def test_an_unknown_task_is_answered_with_the_nearest(told):
    assert told["unknown"].code == 2
    assert "did you mean 'scope'?" in told["unknown"].err


def test_the_last_task_goes_and_the_rest_verifies(told):
    done = told["done"]
    assert done.code == 0
    assert (done.json["positions"], done.json["exact"], done.json["done"]) == ([1], True, True)
    assert done.err == ""
    assert "The only entry answers" in told["verify"].out


def test_an_entry_goes_by_its_position_and_the_latest_of_a_name_alone(told):
    assert told["position"].json["positions"] == [1]
    assert told["latest"].json["positions"] == [2]

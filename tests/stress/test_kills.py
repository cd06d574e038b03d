"""Every command that writes, killed at calls that change a file, and repeated.

What it leaves can be read, a bank is the old or the new one, and the same command again ends as if
it had never been disturbed, or says that all is done. No file is left over. ``KILLS=25`` in the
environment kills a command at so many of its calls, evenly spread.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from benchmark_scripts import run_script
from interrupted import outcome_of
from tiny_checkpoint import QUICK
from tiny_runs import Told, cl_graft, file_hashes

from cl_graft.settings import to_nested
from cl_graft.storage import load_bank
from cl_graft.storage.bank_folder import STAGED
from cl_graft.storage.files import is_partial, unpack

KILLS = int(os.environ.get("KILLS", "4"))
SETTINGS = {
    **QUICK,
    "stream.tasks": ["scope", "topic"],
    "output.checkpoint_steps": 5,
    "model.name": "tiny_bert",
}
RUN = "first/grafting/seed0"
BANK = f"{RUN}/bank"
LEARN = ("run", "stream.yaml", "--strategy", "grafting", "--out", "first")
APART = (*LEARN, "--set", "grafting.mode=isolated")
COMPARE = ("compare", "stream.yaml", "--strategies", "grafting,naive", "--out", "first")
EXPORT = ("export", RUN, "--task", "topic", "--out", "made")
SETS = tuple(
    word for name in QUICK if name != "stream.tasks" for word in ("--set", f"{name}={QUICK[name]}")
)
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "run": (LEARN,),
    "compare": (COMPARE,),
    "add": (LEARN, ("add", BANK, "--task", "entailment")),
    "forget": (LEARN, ("forget", BANK, "topic")),
    "forget of isolated": (APART, ("forget", BANK, "scope")),
    "forget --retrain": (LEARN, ("forget", BANK, "scope", "--retrain")),
    "localize": (("localize", "scope", *SETS, "--model", "tiny_bert", "--out", "region"),),
    "export": (LEARN, EXPORT),
    "export to PEFT": (LEARN, (*EXPORT, "--format", "peft-shira")),
    "import": (
        APART, EXPORT, ("import", "made", "--bank", "new", "--task", "topic", "--base", "tiny_bert")
    ),
    "import into a bank": (
        APART, EXPORT, ("import", "made", "--bank", BANK, "--task", "again")
    ),
    "report": (COMPARE, ("report", "first", "--out", "page")),
}  # fmt: skip
"""Commands after those that make the files that they begin with."""

TIMED = {"config.json", "metrics.csv", "results.json", "summary.json", "summary.md"}
"""Files of runs that tell the time: what is in them is compared by `outcome_of`."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="open files are looked up in Linux's /proc")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_leaves_the_old_or_the_new_and_the_same_again_ends_it(
    name, tiny_bert, tmp_path, monkeypatch
):
    before, work, log = tmp_path / "before", tmp_path / "work", tmp_path / "log"
    *first, command = COMMANDS[name]
    shutil.copytree(tiny_bert, work / "tiny_bert")
    (work / "stream.yaml").write_text(json.dumps(to_nested(SETTINGS)))
    monkeypatch.chdir(work)
    for words in first:
        assert done(*words).code == 0
    shutil.copytree(work, before)

    def begin(at: int) -> int:
        for path in work.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(before, work, dirs_exist_ok=True)
        return run_script(
            "write_points.py", at, log, *command, folder=work, code=None, COLUMNS="400"
        ).returncode

    old = banks(before)
    assert begin(-1) == 0
    calls, expected, new = log.read_text().splitlines(), state(work), banks(work)
    assert begin(-1) == 0
    # What differs between two undisturbed runs tells the time; only its name is compared.
    again = state(work)
    expected = {key: value if value == again.get(key) else "" for key, value in expected.items()}
    for number in sorted({round(i * (len(calls) - 1) / (KILLS - 1)) for i in range(KILLS)}):
        where = f"call {number}: {calls[number]}"
        assert begin(number) in (-9, 0), where
        read_all(work)
        left = banks(work)  # all of which can be read
        assert all(left[place] in (old[place], new[place]) for place in old), where
        told = done(*command)
        word = "no task" if command[0] == "forget" else "already"
        assert told.code == 0 or word in told.err, (where, told.err)
        found = {key: value if expected.get(key) else "" for key, value in state(work).items()}
        assert found == expected, where


def done(*words: str) -> Told:
    return cl_graft(*words, COLUMNS="400")


def state(work: Path) -> dict[str, object]:
    """Return a hash of every file, and what runs hold beside the time."""
    hashes = {
        name: "" if Path(name).name in TIMED else value
        for name, value in file_hashes(work).items()
        if "events.out." not in name and "/cache/" not in name
    }
    runs = (path.parent for path in work.rglob("results.json"))
    return hashes | {f"all of {run.relative_to(work)}": repr(outcome_of(run)) for run in runs}


def banks(work: Path) -> dict[str, list[tuple[str, int, str]]]:
    """Return the entries of every bank in a folder; what a retraining staged may be half gone."""
    return {
        str(path.relative_to(work)): [
            (entry.task, entry.label, entry.weights_sha256)
            for entry in load_bank(path.parent).entries
        ]
        for path in work.rglob("bank.json")
        if STAGED not in path.parts
    }


def read_all(work: Path) -> None:
    """Read every file of ours that a killed process left."""
    formats = {"cache": "cl-graft-cache", "checkpoints": "cl-graft-checkpoint"}
    for path in work.rglob("*"):
        if path.is_file() and not is_partial(path):
            if path.parent.name in formats:
                unpack(path.read_bytes(), format=formats[path.parent.name], name=path.name)
            elif path.suffix == ".json":
                json.loads(path.read_text())

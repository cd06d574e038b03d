"""Exports of tasks that are answered with text say how they are asked, and hold the bank's bits."""

import json

import pytest
import torch
from answer_data import answer_folder
from integrations.readme import run_readme
from slow_cases import slow
from tiny_runs import QUICK, tiny_run

from cl_graft.banks.open_bank import open_bank
from cl_graft.integrations.task_export import export_task

FAMILIES = {"chat": "causal_lm", "t5": "seq2seq_lm", "bart": "seq2seq_lm"}


@pytest.mark.parametrize("name", ["chat", *slow("t5", "bart")])
def test_an_export_loads_with_its_readme_and_names_its_stops(request, tmp_path, name):
    for task in ("instruction", "messages"):
        answer_folder(tmp_path / "data" / task, task)
    tasks = ["instruction", "messages" if name == "chat" else "scope"]
    own = {"data": str(tmp_path / "data"), "max_length": 48, "steps": 4, "family": FAMILIES[name]}
    own["task_settings"] = {"instruction": {"decoding": {"cut": "left", "beams": 2}}}
    model = request.getfixturevalue(f"tiny_{name}")
    opened = open_bank(tiny_run(tmp_path / "run", model, tasks, **{**QUICK, **own}))
    for position, task in enumerate(tasks):
        out = tmp_path / task
        export_task(opened.folder, task, out=out, format="hf")
        opened.carry(position)
        theirs = dict(run_readme(out)["model"].named_parameters())
        for parameter, mine in opened.loaded.model.backbone.named_parameters():
            assert torch.equal(theirs[parameter], mine)
        record = json.loads((out / "task.json").read_text())
        if task != "scope":
            assert record["stop_token_ids"] == opened.bank.entries[position].head["stops"].tolist()
            assert f"text of at most {record['longest']} tokens" in (out / "README.md").read_text()

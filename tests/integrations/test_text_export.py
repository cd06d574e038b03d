"""Exports of tasks that are answered with text: the lines of their README give the same text."""

from dataclasses import replace
from pathlib import Path

import pytest
from answer_data import answer_folder
from integrations.readme import answered
from slow_cases import slow_but
from tiny_runs import QUICK, tiny_run

from cl_graft.banks.open_bank import open_bank
from cl_graft.errors import BankError
from cl_graft.integrations.task_export import export_task
from cl_graft.storage import load_bank, save_bank

FAMILIES = {"chat": "causal_lm", "t5": "seq2seq_lm", "bart": "seq2seq_lm"}
TEXT = "The oil and the rain"


@pytest.fixture(scope="module", params=slow_but(("chat", "t5"), FAMILIES))
def bank(request, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    names = ["instruction", "messages"] if request.param == "chat" else ["instruction", "sentiment"]
    answer_folder(root / "instruction", "instruction")
    answer_folder(root / "messages", "messages")
    cut = {"decoding": {"cut": "left", "beams": 2, "stop": ["xyz"]}}
    own = {"data": str(root), "max_length": 48, "steps": 4, "family": FAMILIES[request.param]}
    if request.param == "chat":  # an answer behind a text, whose line breaks at its end count
        own["task_settings"] = {"instruction": {**cut, "template": "{instruction}\n{input}"}}
    elif request.param != "t5":
        own["task_settings"] = {"instruction": cut}
    model = request.getfixturevalue(f"tiny_{request.param}")
    return tiny_run(tmp_path_factory.mktemp("run"), model, names, **{**QUICK, **own})


def test_the_readme_gives_the_answers_of_the_bank(bank, tmp_path):
    opened = open_bank(bank)
    for task in opened.tasks:
        out = tmp_path / task
        export_task(bank, task, out=out, format="hf")
        own = opened.predict([TEXT], task=task)[0]
        if task == "sentiment":
            assert answered(out, TEXT).tolist() == pytest.approx(own.logits, abs=1e-4)
        else:
            assert answered(out, TEXT) == own.label


def test_an_entry_that_does_not_say_that_it_writes_is_refused(bank, tmp_path):
    held = load_bank(bank / "bank")
    task = held.entries[0].task
    metadata = {k: v for k, v in held.entries[0].metadata.items() if k not in ("kind", "prompt")}
    entries = (replace(held.entries[0], metadata=metadata), *held.entries[1:])
    save_bank(replace(held, entries=entries), tmp_path / "bank")
    with pytest.raises(BankError, match="needs a prompt, and it holds none"):
        export_task(tmp_path / "bank", task, out=tmp_path / "out", format="hf")
    assert not (tmp_path / "out").exists()

"""Exports of tagging answer alike through transformers' own class, and say where intents are."""

from __future__ import annotations

import json

import pytest
import torch
from integrations.readme import answered
from kind_data import tagged_folder
from slow_cases import slow
from tiny_runs import QUICK, tiny_run

from cl_graft.banks.input_texts import InputText
from cl_graft.banks.open_bank import open_bank
from cl_graft.errors import InputError
from cl_graft.integrations import export_task, import_task

TEXTS = [
    "the book is by Lily",
    " they live  near the small town",
    "[SEP] Lily \u200b met <mask> Ångström",
]
LONG = "the little girl met the president on Monday " * 8


@pytest.fixture(scope="module", params=["bert", *slow("roberta")])
def bank(request, tmp_path_factory):
    model = request.getfixturevalue(f"tiny_{request.param}")
    out = tmp_path_factory.mktemp("tags")
    tagged_folder(out / "names")
    tagged_folder(out / "plans", intents=True)
    own = {"shots": None, "max_train": 32, "data": str(out), "lr": 0.01, "steps": 10}
    return tiny_run(out / "run", model, ["names", "plans"], **{**QUICK, **own}) / "bank"


@pytest.mark.parametrize("task", ["names", "plans"])
def test_a_token_classifier_of_transformers_has_the_same_logits_at_all_words(bank, tmp_path, task):
    from transformers import AutoModelForTokenClassification

    export_task(bank, task, format="hf", out=tmp_path / "out")
    theirs = AutoModelForTokenClassification.from_pretrained(tmp_path / "out").eval()
    opened = open_bank(bank)
    position = ["names", "plans"].index(task)
    tags = opened.bank.entries[position].metadata["label_names"]
    assert [theirs.config.id2label[number] for number in range(len(tags))] == tags
    for text in [*TEXTS, LONG]:
        encoded, _ = opened._encode([InputText(text, None, task, "text 1")], position)
        ours = opened.logits(encoded.inputs, position)[0]
        kept = int((encoded.inputs[0, 1] != 0).sum())
        with torch.no_grad():
            found = theirs(input_ids=encoded.inputs[:, 0, :kept]).logits[0]
        columns = [column for column in (encoded.places or ())[0] if column >= 0]
        assert columns
        expected = ours[columns, : len(tags)]
        torch.testing.assert_close(found[columns], expected, rtol=1e-5, atol=1e-5)


def test_the_readme_says_what_tags_and_intents_are_called(bank, tmp_path):
    for task in ("names", "plans"):
        export_task(bank, task, format="hf", out=tmp_path / task)
    opened = open_bank(bank)
    said = opened.predict(TEXTS[0], task="names")
    found = answered(tmp_path / "names", TEXTS[0])
    tags = opened.bank.entries[0].metadata["label_names"]
    assert {tags[number] for number in found.argmax(1).tolist()} >= set(said.tags)
    readme = (tmp_path / "plans" / "README.md").read_text()
    assert "Tags, in the order of the logits: `O`, `B-person`" in readme
    assert "Intents: `meet`, `travel`." in readme
    assert (tmp_path / "plans" / "head.safetensors").is_file()
    assert "Intents" not in (tmp_path / "names" / "README.md").read_text()
    record = json.loads((tmp_path / "plans" / "task.json").read_text())
    assert (record["kind"], record["intent_names"]) == ("tagging", ["meet", "travel"])


def test_tags_are_not_imported(bank, tmp_path):
    export_task(bank, "names", format="hf", out=tmp_path / "out")
    for _ in ("with its task.json", "without"):
        with pytest.raises(InputError, match="only models of classes and numbers are imported"):
            import_task(tmp_path / "out", tmp_path / "new", task="names", base="nowhere")
        (tmp_path / "out" / "task.json").unlink(missing_ok=True)

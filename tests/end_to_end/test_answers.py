"""Answers in passages, numbers and labels in one stream, on the whole path."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from answer_tasks import make_questions, question_task, write_answer_tasks, write_task
from configs import config_with
from tiny_runs import QUICK, forgets_nothing

from cl_graft import load_bank, load_task, save_bank
from cl_graft.banks.add import add_task
from cl_graft.banks.open_bank import OpenBank
from cl_graft.banks.verify import verify
from cl_graft.cli.predict import predict_command
from cl_graft.errors import InputError
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.results.run_results import read_result
from cl_graft.lab.results.task_files import ANSWERS
from cl_graft.settings.bank_metadata import task_metadata

TASKS = ["places", "scope", "cheer"]
LONG = " ".join(one["context"] for one in make_questions(6))
ASKED = [
    ("Where is a man?", LONG),
    ("Where is a teacher?", "A teacher is walking in the park."),
    ("Where is a woman? " * 9, LONG[:400]),
]
TEXTS = ["It was warm, funny, slow, cold.", "It was dull."]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    write_answer_tasks(folder)
    return folder


@pytest.fixture(scope="module")
def settings(data: Path) -> dict:
    return {**QUICK, "data": str(data), "max_length": 32, "max_test": 10, "steps": 6}


def test_answers_numbers_and_labels_are_learned_in_one_stream_and_nothing_is_forgotten(
    run: Path, data: Path
):
    result = read_result(run)
    assert result.metrics == {"places": "answer_f1", "scope": "accuracy", "cheer": "pearson"}
    assert forgets_nothing(result)
    assert set(result.reliability or {}) <= {"scope"}
    assert [len(load_task(name, data=data, shots=7).train) for name in ("places", "cheer")] == [
        7,
        7,
    ]
    rows = result.data["places"]["rows"]  # not windows
    assert (rows["train"], rows["test"]) == (8, 10)


def test_a_run_keeps_answers_from_passages_beside_the_right_ones(run: Path, data: Path):
    found = ANSWERS.read(run)
    assert list(found) == ["places"]
    own = found["places"]
    assert (own.same, own.rows, len(own.shown)) == (True, 10, 10)
    asked = [
        (row.text, tuple(text for text, _ in row.answers), row.text_pair)
        for row in load_task("places", data=data).test
    ]
    for one in own.shown:
        assert one.now == one.learned
        same = [passage for text, right, passage in asked if (text, right) == (one.text, one.right)]
        assert any(one.now in passage for passage in same)


def test_a_bank_of_answers_verifies_and_a_changed_bit_is_seen(run: Path, tmp_path: Path):
    report = verify(run)
    assert report.ok
    assert {entry.recorded_batch for entry in report.entries} == {"same bits"}
    bank = load_bank(run / "bank")
    for position, name in ((0, "ends.bias"), (2, "bias")):
        entry = bank.entries[position]
        head = {**entry.head, name: entry.head[name] + 0.01}
        entries = [*bank.entries]
        entries[position] = replace(entry, head=head)
        save_bank(replace(bank, entries=tuple(entries)), tmp_path / name)
        found = verify(tmp_path / name)
        assert found.entries[position].recorded_batch == "differs"


def test_a_mixed_batch_of_windows_numbers_and_labels_answers_as_each_alone(opened: OpenBank):
    asked = [(pair, "places") for pair in ASKED]
    asked += [(text, task) for text in TEXTS for task in ("cheer", "scope")]
    order = [3, 0, 4, 1, 5, 2, 6]
    mixed = opened.predict([asked[n] for n in order], batch_size=16)
    for place, together in zip(order, mixed, strict=True):
        text, task = asked[place]
        alone = opened.predict([text], task=task)[0]
        assert together.spans == alone.spans
        assert together.entry == alone.entry
        if task == "cheer":
            assert together.label == pytest.approx(alone.label, abs=1e-4)
        else:
            assert together.label == alone.label
        assert together.probabilities == pytest.approx(alone.probabilities, abs=1e-4)


def test_the_command_line_shows_the_answer_and_its_place_and_numbers(
    run: Path, opened: OpenBank, data: Path, tmp_path: Path, capsys
):
    question, passage = ASKED[1]
    (said,) = opened.predict([ASKED[1]], task="places")
    predict_command(str(run), [question], task="places", pair=[passage], quiet=True)
    text, place, shown = capsys.readouterr().out.rstrip("\n").split("\t")
    assert (text, place) == (said.label, f"{said.spans[0].start}:{said.spans[0].end}")
    assert shown == f"{question} / {passage}"
    file = data / "places" / "test.jsonl"
    predict_command(str(run), task="places", file=file, as_json=True, quiet=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        (span,) = line["spans"]
        assert row["context"][span["start"] : span["end"]] == span["text"] == line["label"]
        assert line["confidence"] is None
    predict_command(str(run), TEXTS, task="cheer", quiet=True)
    for line, answer in zip(
        capsys.readouterr().out.splitlines(), opened.predict(TEXTS, task="cheer"), strict=True
    ):
        assert line.split("\t")[:2] == [f"{answer.label:.4g}", "–"]


BAD = {
    "moved": ("places", lambda row: row["answers"][0].update(start=0), "is not at character 0"),
    "word": ("cheer", lambda row: row.update(label="much"), "label 'much' is no number"),
}


@pytest.mark.parametrize("damage", BAD)
def test_a_bad_row_is_named_by_file_and_line_before_anything_is_computed(
    damage, data, bank, tiny_bert, settings, tmp_path
):
    name, change, said = BAD[damage]
    folder = shutil.copytree(data, tmp_path / "data") / name
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    change(rows[4])
    write_task(folder, {"train": rows})
    own = {**settings, "model": str(tiny_bert), "tasks": ["scope", name], "seeds": [0]}
    config = config_with({**own, "data": str(folder.parent), "strategies": ["grafting"]})
    out = tmp_path / "out"
    with pytest.raises(InputError, match=rf"train\.jsonl:5: .*{said}"):
        compare(config, out=out)
    assert not list(out.rglob("bank"))
    with pytest.raises(InputError, match=rf"train\.jsonl:5: .*{said}"):
        add_task(bank, name, settings={"stream": {"data": str(folder.parent)}})
    assert len(load_bank(bank)) == 3
    kept = load_task(name, data=folder.parent, on_bad_row="skip")
    assert len(kept.train) == len(rows) - 1
    assert "left out 1 row" in kept.source["notes"][0]


def test_an_entry_records_how_long_its_answers_are():
    def recorded(last: int) -> object:
        targets = torch.tensor([[3, last, 0], [0, 0, 1]])
        config = config_with(tasks="scope")
        return task_metadata(question_task(), config, seed=0, targets=targets).metadata

    assert recorded(42) == {**recorded(20), "longest_answer": 40}

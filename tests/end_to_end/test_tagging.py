"""Tagging on the whole path: learned, resumed, grown, verified, asked, in mixed batches too."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from kind_data import tagged_folder, tagged_records
from tiny_runs import QUICK, forgets_nothing

from cl_graft import load_bank, save_bank
from cl_graft.banks.add import add_task
from cl_graft.banks.input_texts import read_texts
from cl_graft.banks.open_bank import OpenBank, list_calibration_notes, predict
from cl_graft.banks.verify import verify
from cl_graft.cli.predict import predict_command
from cl_graft.errors import InputError
from cl_graft.lab.commands.report import _read_rows
from cl_graft.lab.reporting.page import make_report
from cl_graft.lab.results.run_results import read_result
from cl_graft.lab.results.stored_runs import find_runs
from cl_graft.lab.results.task_files import ERRORS, count_wrong

TASKS = ["names", "scope", "plans"]
ASKED = ["the book is by Lily", "they live near the small town", "nobody is outside"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    tagged_folder(folder / "names")
    tagged_folder(folder / "plans", intents=True)
    return folder


@pytest.fixture(scope="module")
def settings(data: Path) -> dict:
    return {
        **QUICK,
        "shots": None,
        "max_train": 32,
        "data": str(data),
        "lr": 0.01,
        "steps": 10,
        "grafting.lr": 0.02,
    }


def test_tags_and_labels_are_learned_in_one_stream_and_nothing_is_forgotten(run: Path):
    result = read_result(run)
    assert result.metrics == {"names": "span_f1", "scope": "accuracy", "plans": "span_f1"}
    assert forgets_nothing(result)
    assert result.R[0][0] > 0


@pytest.mark.usefixtures("blank_figures")
def test_a_run_counts_wrong_spans_and_intents_and_a_report_shows_them(run: Path, tmp_path: Path):
    found, result = ERRORS.read(run), read_result(run)
    assert list(found) == ["names", "scope", "plans", "plans (intents)"]
    for place, task in enumerate(TASKS):
        own = found[task]
        assert own.learned == own.end
        if task == "scope":
            continue
        assert (own.labels, own.counted) == (("person", "place", "no span"), "spans")
        right = sum(count for first, second, count in own.end if first == second)
        there = sum(count for first, _, count in own.end if first < 2)
        answered = sum(count for _, second, count in own.end if second < 2)
        assert result.R[-1][place] == pytest.approx(2 * right / (there + answered))
    assert found["plans (intents)"].labels == ("meet", "travel")
    intents = found["plans (intents)"]
    assert sum(count for *_, count in intents.end) == 20
    rows = _read_rows(find_runs([run])[0])
    assert len(intents.wrong) == min(10, count_wrong(intents.end))
    for one in intents.wrong:
        assert rows["plans"][one.row].label == one.right != one.answer
    page = make_report([run], out=tmp_path / "report").page.read_text()
    assert "test spans by label (rows) and answer (columns)" in page
    assert "plans (intents)" in page


def test_a_bank_of_tags_verifies_and_a_changed_bit_is_seen(run: Path, tmp_path: Path):
    report = verify(run)
    assert report.ok
    assert {entry.recorded_batch for entry in report.entries} == {"same bits"}
    bank = load_bank(run / "bank")
    entry = bank.entries[2]
    assert entry.metadata["kind"] == "tagging"
    head = dict(entry.head)
    for name in ("tags.bias", "intents.bias"):
        head[name] = head[name] + 0.01
    recorded = entry.recorded_batch
    assert recorded is not None
    last = torch.nextafter(recorded.logits, torch.full_like(recorded.logits, 9.0))
    changes = [{"head": head}, {"recorded_batch": replace(recorded, logits=last)}]
    changes += [{"owned": replace(entry.owned, values=entry.owned.values + 1)}]
    for number, change in enumerate(changes):
        own = replace(bank, entries=(*bank.entries[:2], replace(entry, **change)))
        save_bank(own, tmp_path / str(number))
        found = verify(tmp_path / str(number))
        assert [one.recorded_batch for one in found.entries] == [
            "same bits", "same bits", "differs",
        ]  # fmt: skip


def test_a_task_of_the_same_name_with_other_intents_is_refused(bank, data, tmp_path):
    lines = (data / "plans" / "train.jsonl").read_text().replace('"travel"', '"go"')
    other = shutil.copytree(data / "plans", tmp_path / "more" / "plans")
    for split in ("train", "dev", "test"):
        lines = (other / f"{split}.jsonl").read_text().replace('"travel"', '"go"')
        (other / f"{split}.jsonl").write_text(lines)
    with pytest.raises(InputError, match=r"knows a task 'plans' with intents .*give the new task"):
        add_task(bank, "plans", settings={"stream": {"data": str(other.parent)}})


def test_rows_of_several_kinds_in_one_batch_are_answered_as_alone(opened: OpenBank):
    asked = [(text, task) for text in ASKED for task in TASKS]
    mixed = opened.predict(asked, batch_size=16)
    for (text, task), together in zip(asked, mixed, strict=True):
        alone = opened.predict(text, task=task)
        assert (together.label, together.tags, together.spans) == (
            alone.label, alone.tags, alone.spans,
        )  # fmt: skip
        assert together.probabilities == pytest.approx(alone.probabilities, abs=1e-4)
        assert together.entry == alone.entry


def test_lists_of_words_and_texts_are_asked_from_one_file(opened: OpenBank, tmp_path: Path):
    rows = [
        {"task": "names", "tokens": ASKED[0].split()},
        {"task": "scope", "text": "It was a delight."},
        {"task": "plans", "text": ASKED[1].replace(" ", "  ")},
    ]
    file = tmp_path / "asked.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = [answer for _, answer in predict(opened, read_texts(file))]
    assert found[0] == opened.predict(ASKED[0], task="names")
    assert found[2] == opened.predict(ASKED[1], task="plans")
    assert [len(answer.tags) for answer in found] == [5, 0, 6]
    file.write_text(json.dumps({"task": "names", "tokens": ["New York"]}))
    with pytest.raises(InputError, match=r"asked.jsonl:1: the word 'New York' .*holds a blank"):
        read_texts(file)
    notes = list_calibration_notes(opened.bank, TASKS)
    assert [note.split(":")[0] for note in notes] == ["scope", "plans"]


def test_the_command_line_shows_words_with_their_spans(run: Path, opened: OpenBank, capsys):
    predict_command(str(run), [*ASKED], task="plans", as_json=True, quiet=True)
    lines = capsys.readouterr().out.splitlines()
    answers = opened.predict(ASKED, task="plans")
    for line, answer, text in zip(lines, answers, ASKED, strict=True):
        content = json.loads(line)
        assert content["tokens"] == text.split()
        assert content["tags"] == list(answer.tags)
        assert len(content["spans"]) == len(answer.spans)
        for span in content["spans"]:
            assert text[span["start"] : span["end"]] == span["text"]
        assert (content["label"], content["confidence"]) == (answer.label, answer.confidence)
    # The task's test rows: in some of them spans are found.
    asked = [" ".join(record["tokens"]) for record in tagged_records(20, seed=2)]
    predict_command(str(run), [*asked], task="names", quiet=True)
    lines = capsys.readouterr().out.splitlines()
    answers = opened.predict(asked, task="names")
    assert any(answer.spans for answer in answers)
    for line, answer in zip(lines, answers, strict=True):
        label, sure, shown = line.split("\t")
        assert (label, sure) == ("–", "–")
        for span in answer.spans:
            assert f"[{span.text}]({span.type})" in shown
        assert shown.count("](") == len(answer.spans)

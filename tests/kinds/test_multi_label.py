"""Several labels a row: the loss of each label, three scores, and labels as answers."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest
import torch
from answer_tasks import write_rows, write_task
from configs import changed
from integrations.readme import answered
from kind_data import labels_task, make_labels
from slow_cases import slow, slow_but
from small_runs import Runs
from torch.nn import functional as F

from cl_graft.banks.open_bank import open_bank
from cl_graft.banks.verify import verify
from cl_graft.data import load_task
from cl_graft.errors import DamagedFile, InputError
from cl_graft.integrations import export_task
from cl_graft.kinds import KINDS, Encoding
from cl_graft.kinds.multi_label import LabelsHead
from cl_graft.lab.experiments.run import run, run_folder
from cl_graft.lab.results.task_files import ERRORS
from cl_graft.metrics import score, task_loss
from cl_graft.strategies.registry import STRATEGIES, list_available

MULTI_LABEL = KINDS.find("multi_label")


def outputs_of(logits: torch.Tensor) -> torch.Tensor:
    """Return what the head gives where a label's logit is this."""
    return torch.stack([torch.zeros_like(logits), logits], -1)


def test_the_loss_is_the_binary_cross_entropy_of_every_label_and_has_its_gradient():
    features = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1]])
    head = LabelsHead(6, 3, seed=0)
    loss = task_loss(head(features), targets)
    expected = F.binary_cross_entropy_with_logits(head.labels(features), targets.float())
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    found, wanted = (torch.autograd.grad(x, head.labels.weight)[0] for x in (loss, expected))
    assert torch.allclose(found, wanted, atol=1e-7)


def test_scores_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(40, 5, generator=draw)
    targets = (torch.rand(40, 5, generator=draw) < 0.4).long()
    answers = (logits > 0).long()
    for name, average in (("micro_f1", "micro"), ("macro_f1", "macro")):
        expected = metrics.f1_score(targets, answers, average=average)
        assert score(outputs_of(logits), targets, name) == pytest.approx(expected)
    expected = metrics.accuracy_score(targets, answers)
    assert score(outputs_of(logits), targets, "subset_accuracy") == pytest.approx(expected)


def test_answers_are_the_labels_above_a_half_and_each_has_a_probability(wordpiece):
    task = labels_task()
    encoding = Encoding(wordpiece, "encoder", None, max_length=32, task=task)
    encoded = MULTI_LABEL.encode(task.train[:3], encoding)
    assert encoded.targets.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    logits = torch.tensor([[2.0, -1.0, 0.1], [-1.0, -2.0, 0.0], [-1.0, 3.0, -1.0]])
    metadata = {"label_names": list(task.label_names)}
    answers = MULTI_LABEL.answer(outputs_of(logits), encoded, task.train[:3], metadata)
    assert [a.labels for a in answers] == [("damage", "payment"), (), ("delivery",)]
    assert [a.label for a in answers] == ["damage|payment", "", "delivery"]
    assert answers[0].probabilities["payment"] == pytest.approx(torch.tensor(0.1).sigmoid().item())
    assert answers[2].confidence is None
    with pytest.raises(DamagedFile, match="names 2 labels, and has 3 logits"):
        MULTI_LABEL.answer(outputs_of(logits), encoded, (), {"label_names": ["a", "b"]})


LISTS = [["damage", "payment"], [], ["payment"], ["delivery", "damage"]] * 4


@pytest.mark.parametrize("form", ["lists", "bars", "json", "python", "commas", "marks"])
def test_labels_are_read_from_lists_parted_texts_and_columns_of_0_and_1(tmp_path, form):
    names = ("damage", "delivery", "payment")
    path, settings = tmp_path / "complaints.csv", {"kind": "multi_label"}
    if form == "lists":
        rows = [{"body": f"text {n}", "topics": own} for n, own in enumerate(LISTS)]
        path = write_rows(tmp_path / "complaints.jsonl", rows)
        settings |= {"text": "body", "label": "topics"}
    else:
        join = {"bars": "|".join, "json": json.dumps, "python": str, "commas": ", ".join}
        columns = (
            {name: [int(name in own) for own in LISTS] for name in names}
            if form == "marks"
            else {"labels": [join[form](own) for own in LISTS]}
        )
        texts = [f"text {n}" for n in range(len(LISTS))]
        pd.DataFrame({"text": texts, **columns}).to_csv(path, index=False)
        settings |= {"label_separator": ","} if form == "commas" else {}
    task = load_task(path, **settings)
    assert task.label_names == names
    found = {row.text: [names[k] for k in row.present] for _, row in task.placed_rows()}
    assert found == {f"text {n}": sorted(own) for n, own in enumerate(LISTS)}
    if form == "marks":
        named = load_task(path, kind="multi_label", label_names=["payment", "damage"])
        assert named.label_names == ("payment", "damage")


def test_lists_in_the_column_of_labels_say_the_kind_and_pairs_have_labels_too(tmp_path):
    rows = [{"text": f"t {n}", "text_pair": "u", "labels": own} for n, own in enumerate(LISTS)]
    task = load_task(write_rows(tmp_path / "pairs.jsonl", rows))
    assert (task.kind, task.metric, task.pair) == ("multi_label", "micro_f1", True)
    assert "3 labels, several a row" in repr(task)


def test_a_wrong_separator_mark_or_label_is_named_with_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,labels\n" + "".join(f'row {n},"a, b"\n' for n in range(8)))
    with pytest.raises(InputError, match=r"t\.csv:2: .*'a, b'; is ',' the label_separator"):
        load_task(path, kind="multi_label")
    path.write_text(
        "text,a,b\n" + "".join(f"row {n},{n % 2},{2 if n == 5 else 1}\n" for n in range(8))
    )
    with pytest.raises(InputError, match=r"t\.csv:7: column 'b' must hold 0 or 1, got '2'"):
        load_task(path, kind="multi_label", label_names=["a", "b"])
    with pytest.raises(InputError, match="no labels found among text, a, b; call the column"):
        load_task(path, kind="multi_label")
    with pytest.raises(InputError, match="label_separator parts the labels of a task of kind"):
        load_task(path, label_separator=";")
    splits = {"train": make_labels(12), "test": [{"text": "x", "label_list": ["smell"]}]}
    with pytest.raises(InputError, match=r"test\.jsonl:1: the label 'smell' is not among"):
        load_task(write_task(tmp_path / "own", splits))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_names": ("damage",)}, "two or more different label names"),
        (
            {"label_names": ("a", "b")},
            r"has labels \(.*\), expected different integers in \[0, 2\)",
        ),
        ({"metric": "accuracy"}, "is a multi-label task: metric 'accuracy' does not fit it"),
    ],
)
def test_a_task_whose_rows_and_names_do_not_fit_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(labels_task(), **change)


@pytest.mark.parametrize("pooling", ["mean", *slow("first")])
def test_it_is_learned_reported_kept_exported_and_answered(tiny_config, tmp_path, pooling):
    data = write_task(tmp_path / "complaints", {"train": make_labels(24), "test": make_labels(12)})
    settings = {"tasks": [str(data), "scope"], "shots": None, "pooling": pooling}
    config = changed(tiny_config, settings)
    result = run(config, strategy="grafting", seed=0, out=tmp_path / "run")
    assert result.R[0][0] == result.R[1][0] is not None
    folder = run_folder(tmp_path / "run", "grafting", 0)
    bank = open_bank(folder)
    assert bank.bank.entries[0].metadata["kind"] == "multi_label"
    text = "It is about a late parcel and a torn box"
    answer = bank.predict(text, task="complaints")
    assert set(answer.probabilities) == {"damage", "delivery", "payment"}
    assert set(answer.labels) == {n for n, share in answer.probabilities.items() if share > 0.5}
    mixed = bank.predict([(text, "complaints"), ("A delight.", "scope")])
    assert mixed[0].probabilities == pytest.approx(answer.probabilities, abs=1e-4)
    report = verify(folder)
    assert [entry.recorded_batch for entry in report.entries] == ["same bits", "same bits"]
    errors = ERRORS.read(folder)["complaints"]
    assert errors.counted == "labels"
    export_task(folder, "complaints", format="hf", out=tmp_path / "hf")
    logits = answered(tmp_path / "hf", text).tolist()
    assert logits == pytest.approx(answer.logits, abs=1e-4)
    kind = json.loads((tmp_path / "hf" / "config.json").read_text()).get("problem_type")
    assert kind == ("multi_label_classification" if pooling == "first" else None)
    assert sum(n for right, _, n in errors.end if right < 3) == sum(
        len(one["label_list"]) for one in make_labels(12)
    )


@pytest.fixture(scope="module")
def runs(tiny_bert, tmp_path_factory):
    """Runs on tasks of three, five and two labels."""
    data = tmp_path_factory.mktemp("labels")
    for name, labels in (("three", 3), ("five", 5), ("two", 2)):
        splits = {"train": make_labels(12, labels=labels), "test": make_labels(6, labels=labels)}
        write_task(data / name, splits)
    tiny = {"data": str(data), "shots": None, "max_dev": 6, "steps": 2, "batch_size": 6}
    return Runs(tiny_bert, tmp_path_factory.mktemp("runs"), tiny)


JOINING = [name for name in list_available() if STRATEGIES[name].kinds == "one"]


@pytest.mark.parametrize("name", slow_but(("replay", "joint"), JOINING))
@pytest.mark.parametrize("micro_batch", [None, *slow(4)])
def test_rows_of_tasks_with_other_numbers_of_labels_stand_in_one_batch(runs, name, micro_batch):
    result = runs(name, tasks=["three", "five", "two"], micro_batch=micro_batch)
    assert result.complete
    assert all(0 <= value <= 1 for value in result.R[-1])

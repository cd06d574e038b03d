"""Scores at the end by metrics that are not the tasks' own: in a run, and in a comparison."""

from __future__ import annotations

import json

import pytest
import torch
from answer_tasks import write_answer_tasks
from small_results import small_result
from tiny_runs import tiny_run

from cl_graft.banks.open_bank import open_bank
from cl_graft.lab.reporting.summary_files import comparison_csv, write_summary
from cl_graft.lab.results.comparison import summarize
from cl_graft.lab.results.run_results import read_result
from cl_graft.metrics import score


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_bert):
    out = tmp_path_factory.mktemp("others")
    return tiny_run(out, tiny_bert, write_answer_tasks(out), max_length=48)


def test_a_run_keeps_exact_match_beside_f1_and_spearman_beside_pearson(run):
    found = read_result(run)
    assert found.metrics == {"places": "answer_f1", "cheer": "pearson"}
    bank = open_bank(run)
    files = ((run.parents[1] / name / "test.jsonl") for name in ("places", "cheer"))
    questions, numbers = (list(map(json.loads, file.read_text().splitlines())) for file in files)
    said = bank.predict([(one["question"], one["context"]) for one in questions], task="places")
    right = [
        "".join(a.label.lower().split()).rstrip(".").removeprefix("the")
        == "".join(one["answers"][0]["text"].split()).removeprefix("the")
        for a, one in zip(said, questions, strict=True)
    ]
    assert found.other_scores["places"] == {"exact_match": pytest.approx(sum(right) / len(right))}
    said = bank.predict([one["text"] for one in numbers], task="cheer")
    expected = score(
        torch.tensor([list(one.logits) for one in said]),
        torch.tensor([one["label"] for one in numbers]),
        "spearman",
    )
    assert found.other_scores["cheer"] == {"spearman": pytest.approx(expected)}
    text = (run / "summary.md").read_text()
    assert f"(answer_f1), {100 * sum(right) / len(right):.1f} (exact_match)" in text
    assert "(spearman)" in text


def test_a_comparison_shows_the_mean_over_tasks_of_each_other_metric(tmp_path):
    runs = [
        small_result(
            strategy=strategy,
            seed=seed,
            other_scores={task: {"f1": 0.5 + 0.1 * seed + shift} for task in ("a", "b")},
        )
        for strategy, shift in (("naive", 0.0), ("grafting", 0.2))
        for seed in (0, 1)
    ]
    summary = summarize(runs, config={})
    assert summary.other_metrics == {"f1": 2}
    assert summary.strategies["grafting"].other_metrics["f1"].mean == pytest.approx(0.75)
    assert "\nnaive,other f1,0.55," in comparison_csv(summary)
    write_summary(summary, tmp_path)
    text = (tmp_path / "summary.md").read_text()
    assert "Scores at the end by other metrics" in text
    assert "| strategy | f1 (2 tasks) |" in text
    assert "| grafting | 75.0 ± 7.1 |" in text

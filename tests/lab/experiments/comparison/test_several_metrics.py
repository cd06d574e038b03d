"""A real stream with three metrics: each has a value of its own, in every file."""

import json

import pytest
from configs import config_with
from tiny_runs import QUICK

from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.comparison.tuning import score_candidates
from cl_graft.metrics.by_metric import LEAST_REFERENCE

TASKS = {"scope": "accuracy", "topic": "f1", "entailment": "matthews"}


@pytest.fixture(scope="module")
def compared(tiny_bert, tmp_path_factory):
    own = {task: {"metric": metric} for task, metric in TASKS.items()}
    asked = {"tasks": list(TASKS), "task_settings": own, "strategies": ["naive", "independent"]}
    config = config_with({**QUICK, "model": str(tiny_bert), **asked})
    return compare(config, out=tmp_path_factory.mktemp("metrics"))


def test_a_stream_of_accuracy_f1_and_matthews_is_compared(compared):
    assert compared.failed == ()
    naive, independent = compared.runs
    assert naive.metrics == TASKS
    stored = json.loads((compared.out / "naive" / "seed0" / "results.json").read_text())
    for name in ("average_accuracy", "backward_transfer", "forgetting"):
        assert getattr(naive, name) is stored[name] is None
    R = naive.R
    row = compared.summary.strategies["naive"]
    assert row.measure("average", "accuracy").mean == R[2][0]
    assert row.measure("average", "f1").mean == R[2][1]
    assert row.measure("backward_transfer", "f1").mean == R[2][1] - R[1][1]
    assert row.measure("forgetting", "accuracy").mean == max(R[0][0], R[1][0]) - R[2][0]
    assert row.measure("average", "matthews").mean == R[2][2]
    assert row.measure("forgetting", "matthews").mean is None  # nothing comes after it
    best = dict(zip(independent.tasks, independent.R[2], strict=True))
    kept = [j for j, task in enumerate(naive.tasks) if best[task] >= LEAST_REFERENCE]
    shares = [R[2][j] / best[naive.tasks[j]] for j in kept]
    assert row.normalized.mean == pytest.approx(sum(shares) / len(shares))
    assert compared.summary.normalization.tasks == [naive.tasks[j] for j in kept]


def test_values_of_a_grid_are_chosen_by_shares_of_the_best_on_each_task(compared):
    naive, independent = compared.runs
    scores = score_candidates([naive, None, independent])
    assert scores[1] is None
    top = [max(pair) for pair in zip(naive.R[2], independent.R[2], strict=True)]
    kept = [j for j in range(3) if top[j] >= LEAST_REFERENCE]
    shares = [naive.R[2][j] / top[j] for j in kept]
    assert scores[0] == pytest.approx(sum(shares) / len(shares))

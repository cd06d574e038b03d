"""A head starts where the settings say: at the dense run's, an earlier task's, or a fitted one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from slow_cases import slow
from tiny_streams import quick, text_learner

from cl_graft.grafts.graft import snapshot
from cl_graft.strategies import head_start
from cl_graft.strategies.task_training import TaskMetadata, TaskTraining
from cl_graft.training.passes import Passes

NAMES = ["negative", "positive"]


@pytest.fixture
def first_heads(tiny_bert, monkeypatch):
    """Return a function that learns two tasks and gives what each head started from."""

    def learn(start: str, *, names: Any = NAMES, others: Any = NAMES, **settings: Any):
        seen: list[dict[str, torch.Tensor]] = []
        make = TaskTraining.__init__

        def watched(self: Any, *args: Any, **given: Any) -> None:
            make(self, *args, **given)
            seen.append({"dense": given["found"].dense.head, "start": snapshot(given["task"].head)})

        monkeypatch.setattr(TaskTraining, "__init__", watched)
        metadata = {
            label: TaskMetadata(f"task{label}", metadata={"label_names": own})
            for label, own in enumerate((names, others))
        }
        run = text_learner(
            tiny_bert,
            ("sentiment", "paraphrase"),
            settings=quick(head_start=start, **settings),
            grafting={"metadata": metadata},
        ).learn()
        return run, seen

    return learn


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    values = zip(one.values(), other.values(), strict=True)
    return all(torch.equal(a.cpu(), b.cpu()) for a, b in values)


def test_by_default_a_head_starts_at_that_of_the_dense_run(first_heads):
    run, seen = first_heads("dense")
    assert all(same(each["dense"], each["start"]) for each in seen)
    assert run.plugin.passes[1]["region"].forward == len(dev_of(run, 1))  # for the temperature


def test_a_head_starts_at_that_of_the_latest_task_with_the_same_labels(first_heads):
    run, seen = first_heads("earlier")
    assert same(seen[0]["dense"], seen[0]["start"])
    assert same(seen[1]["start"], dict(run.plugin.bank.entries[0].head))
    assert not same(seen[1]["dense"], seen[1]["start"])


@pytest.mark.parametrize(
    "change",
    [{"others": NAMES[::-1]}, *slow({"others": ["no", "yes"]}, {"builds_on": "none"})],
)
def test_a_task_with_other_labels_or_that_is_not_built_on_gives_no_head(first_heads, change):
    _, seen = first_heads("earlier", **change)
    assert same(seen[1]["dense"], seen[1]["start"])


def test_a_head_is_fitted_to_the_features_and_its_rows_are_counted(first_heads):
    plain, _ = first_heads("dense")
    run, seen = first_heads("fitted")
    assert not any(same(each["dense"], each["start"]) for each in seen)
    more = run.plugin.passes[1]["region"].forward - plain.plugin.passes[1]["region"].forward
    assert more == rows_of(run, 1) + len(dev_of(run, 1))


def test_dev_takes_the_head_that_scores_best_and_of_equal_ones_that_of_the_dense_run(
    first_heads, monkeypatch
):
    for place, key in enumerate(("dense", "earlier", "fitted")):
        scores = iter([0.5 + 0.1 * (place == 0), 0.5 + 0.1 * (place == 1)])
        fitted = {}

        def fit(task: Any, *, rows: int, seed: int, place: int = place, fitted: Any = fitted):
            fitted |= {name: torch.full_like(p, 0.25) for name, p in task.head.items()}
            return fitted, 0.5 + 0.1 * (place == 2)

        def make(task: Any, settings: Any, *, earlier: Any, seed: int, scores: Any = scores):
            if not earlier:  # the first task
                return Passes()
            known = type(task)
            monkeypatch.setattr(known, "dev_score", lambda self: next(scores))
            try:
                return head_start.start_head_(task, settings, earlier=earlier, seed=seed)
            finally:
                monkeypatch.undo()

        monkeypatch.setattr("cl_graft.strategies.task_training.start_head_", make)
        monkeypatch.setattr(head_start, "score_fitted_head", fit)
        run, seen = first_heads("dev")
        expected = {
            "dense": seen[1]["dense"],
            "earlier": dict(run.plugin.bank.entries[0].head),
            "fitted": fitted,
        }
        assert same(seen[1]["start"], expected[key])


def dev_of(run: Any, label: int) -> Any:
    return run.benchmark.streams["valid"][label].dataset


def rows_of(run: Any, label: int) -> int:
    return len(run.benchmark.streams["train"][label].dataset)

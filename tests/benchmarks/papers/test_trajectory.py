"""Checkpoints along a run, and regions for the labels that a model gives itself."""

import torch
from papers.trajectory import label_by_model, walk_dense_run
from small_tasks import make_task

from cl_graft.grafts.graft import snapshot
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.fine_tuning_settings import FineTuning

PLAN = FineTuning(steps=9, lr=0.3, evaluations=3)


def test_looking_in_along_a_run_changes_no_bit_of_it():
    plain = fine_tune_task(make_task(), PLAN, seed=0)
    task, seen = make_task(), {}

    def visit(step):
        assert not task.model.training
        seen[step] = snapshot(task.parameters)

    watched = walk_dense_run(task, PLAN, seed=0, at=(3, 9), visit=visit)
    assert list(seen) == [3, 9]
    assert all(torch.equal(plain.tuned[n], watched.tuned[n]) for n in plain.tuned)
    assert any(not torch.equal(seen[3][n], seen[9][n]) for n in seen[3])


def test_a_model_agrees_with_the_labels_it_gives():
    task = make_task()
    task.model.eval()
    own = label_by_model(task)
    assert own.dev_score() == 1.0
    assert own.train_score(rows=150, seed=0) == 1.0
    assert task.dev_score() < 1.0
    assert own.content != task.content
    inputs, labels = own.train.batch([0, 5])
    assert torch.equal(inputs, task.train.batch([0, 5])[0])
    assert labels.dtype == torch.int64

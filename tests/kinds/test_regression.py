"""Regression: a squared error, correlations, and numbers as answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from answer_tasks import number_task

from cl_graft.errors import InputError
from cl_graft.kinds import KINDS, Encoding
from cl_graft.metrics import task_loss

REGRESSION = KINDS.find("regression")


def test_the_loss_is_the_mean_squared_error_and_has_its_gradient():
    logits = torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True)
    loss = task_loss(logits, torch.tensor([1.0, 0.0, 1.0]))
    assert loss.item() == pytest.approx((0 + 4 + 9) / 3)
    loss.backward()
    assert logits.grad.squeeze(1).tolist() == pytest.approx([0, 4 / 3, 2])


def test_targets_are_fp32_numbers_and_answers_are_numbers(wordpiece):
    task = number_task()
    encoding = Encoding(wordpiece, "encoder", None, max_length=32, task=task)
    encoded = REGRESSION.encode(task.train, encoding)
    assert encoded.targets.dtype == torch.float32
    assert encoded.targets.tolist() == [row.label for row in task.train]
    answers = REGRESSION.answer(torch.tensor([[2.5]]), encoded, task.train[:1], {"label_names": []})
    assert answers[0].label == 2.5
    assert answers[0].logits == (2.5,)
    assert (answers[0].probabilities, answers[0].confidence) == ({}, None)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_split_with_one_number_alone_is_refused(split):
    task = number_task()
    same = {split: tuple(replace(row, label=2.5) for row in task.splits[split])}
    with pytest.raises(InputError, match=rf"'cheer': the \d+ {split} row\(s\) all have the number"):
        replace(task, **same)


def test_a_metric_of_classes_and_label_names_are_refused():
    for change, message in (
        ({"metric": "accuracy"}, r"metric 'accuracy' does not fit.*pearson, spearman"),
        ({"label_names": ("low", "high")}, "neither label names nor a positive label"),
    ):
        with pytest.raises(InputError, match=message):
            replace(number_task(), **change)

"""Regression: a number for a text or a pair of texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch

from cl_graft.errors import InputError
from cl_graft.kinds.kind import register_kind
from cl_graft.kinds.one_label import OneLabel, check_labels
from cl_graft.kinds.text_task import TextTask


@register_kind
class Regression(OneLabel):
    """A number for a text or a pair of texts, learned by the squared error."""

    name = "regression"
    metrics = ("pearson", "spearman")
    dtype = torch.float32

    def check(self, task: TextTask) -> None:
        """Check that there are no label names, and that labels are finite numbers that differ.

        A correlation has no value where all numbers are equal. Dev rows, which may be a handful
        set aside, are not asked to differ.
        """
        if task.label_names or task.positive is not None:
            raise InputError(
                f"task {task.name!r} is a regression, so it has neither label names nor a positive "
                f"label; got {list(task.label_names)}, {task.positive!r}"
            )
        check_labels(task, math.isfinite, "a finite number")
        for split, rows in (("train", task.train), ("test", task.test)):
            if len({row.label for row in rows}) == 1:
                raise InputError(
                    f"task {task.name!r}: the {len(rows):,} {split} row(s) all have the number "
                    f"{rows[0].label}; a correlation needs two different numbers or more"
                )

    def choose_tried(self, rows: Sequence[Any], count: int) -> tuple[Any, ...]:
        """Return the first rows, and one with another number where these have only one."""
        first = tuple(rows[:count])
        if len({row.label for row in first}) > 1:
            return first
        others = (row for row in rows[count:] if row.label != first[0].label)
        return (*first, *islice(others, 1))

    def describe(self, task: TextTask) -> str:
        """Return the name of the kind."""
        return "regression"

    def count_outputs(self, task: TextTask) -> int:
        """Return 1."""
        return 1

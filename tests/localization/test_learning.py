"""What a task is before its region trains: settings, rows, the dense run."""

import pytest
import torch
from small_tasks import FAST, make_task

from cl_graft.errors import InputError
from cl_graft.localization.learning import GraftingSettings, fine_tune_task


def test_the_dense_run_moves_the_graftable_parameters_and_the_head():
    task = make_task()
    dense = fine_tune_task(task, FAST, seed=0)
    assert all(not torch.equal(dense.tuned[n], p) for n, p in task.parameters.items())
    assert all(not torch.equal(dense.head[n], p) for n, p in task.head.items())
    assert dense.dev is not None
    assert 0 <= dense.dev <= 1


@pytest.mark.parametrize("density", [0, -0.1, 1.5])
def test_a_density_out_of_range_is_refused(density):
    with pytest.raises(ValueError, match=r"density must be in \(0, 1\]"):
        GraftingSettings(density=density)


def test_an_unknown_localizer_is_refused_when_the_settings_are_made():
    with pytest.raises(InputError, match="did you mean 'learned_mask'"):
        GraftingSettings(localizer="learned-mask")


def test_a_split_holds_every_row_once():
    task = make_task()
    rest, part = task.train.split(0.05, seed=3)
    assert len(part) == 8
    assert sorted([*rest.rows, *part.rows]) == list(range(150))

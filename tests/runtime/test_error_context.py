"""Errors of a run say in which phase and task it was, and what to lower."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_tasks import make_task, settings
from torch import Tensor

from cl_graft.errors import DivergedError, InputError, NotFinite, OutOfMemory
from cl_graft.grafts.graft import snapshot
from cl_graft.localization import LOCALIZERS
from cl_graft.localization.region_search import find_region
from cl_graft.runtime.error_context import in_phase, in_task
from cl_graft.training.learnable_task import LearnableTask

# The small task has neither a LayerNorm nor a feed-forward part.
UNFIT = ("layer_norm_only", "columns")
GRADIENTS = [n for n, row in LOCALIZERS.items() if row.needs_gradients and n not in UNFIT]


def allocate() -> Tensor:
    """More than any machine has: torch's own allocator refuses it."""
    return torch.empty(2**50, dtype=torch.uint8)


def at(task: LearnableTask, call: int, happens) -> LearnableTask:
    """Let something happen to the answers of a task from a call of the model on."""
    count = 0

    def forward(inputs: Tensor) -> Tensor:
        nonlocal count
        count += 1
        answers = task.forward(inputs)
        return happens(answers) if count >= call else answers

    return replace(task, forward=forward)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), None],
)
def test_running_out_of_memory_names_the_phase_and_what_to_lower(error):
    with (
        pytest.raises(OutOfMemory, match="out of memory in localization") as told,
        in_task("topic"),
        in_phase("region training"),
        in_phase("localization"),
    ):
        if error is not None:
            raise error
        allocate()
    assert str(told.value).startswith("task 'topic': out of memory")
    assert "lower micro_batch" in str(told.value)
    assert "cl-graft plan" in str(told.value)
    assert told.value.task == "topic"
    if error is None:
        assert "1125899906842624 bytes" in str(told.value)


@pytest.mark.parametrize("error", [RuntimeError("shapes"), OSError("gone"), InputError("typo")])
def test_other_errors_pass_as_they_are(error):
    with pytest.raises(type(error)) as told, in_task("topic"), in_phase("evaluation"):
        raise error
    assert told.value is error


def test_answers_that_cannot_be_scored_name_the_innermost_task_and_the_phase():
    phase = in_phase("evaluation")
    with pytest.raises(NotFinite) as told, in_task("outer"), in_task("inner"), phase:
        raise NotFinite("logits hold NaN")
    assert str(told.value) == "task 'inner': evaluation: logits hold NaN"


@pytest.mark.parametrize(("phase", "call"), [("dense fine-tuning", 5), ("localization", 33)])
def test_a_phase_without_memory_is_named_and_the_model_put_back(phase, call):
    task = at(make_task(), call, lambda _: allocate())
    before = snapshot(dict(task.model.named_parameters()))
    with pytest.raises(OutOfMemory, match=f"out of memory in {phase} "):
        find_region(task, settings(localizer="learned_mask"))
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize(("value", "candidates"), [(float("nan"), None), (float("inf"), 5)])
def test_localization_stops_at_a_loss_that_is_no_number(name, value, candidates):
    needs_dense_run = LOCALIZERS[name].needs_dense_run
    chosen = settings(localizer=name, mask_candidates=candidates)
    # 30 steps of the dense run and its looks at dev come first.
    task = at(make_task(), 36 if needs_dense_run else 2, lambda answers: answers * value)
    before = snapshot(dict(task.model.named_parameters()))
    with pytest.raises(DivergedError, match=f"localization by {name}: the loss is (nan|inf) at"):
        find_region(task, chosen)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(found, after[name]) for name, found in before.items())


def test_dense_fine_tuning_names_the_step_of_answers_on_dev_that_are_no_numbers():
    def refuse(logits: Tensor, targets: Tensor) -> float:
        del logits, targets
        raise NotFinite("logits hold NaN")

    task = replace(make_task(), score=refuse)
    with pytest.raises(DivergedError, match=r"logits hold NaN at step 15 of dense .* lr 0\.5"):
        find_region(task, settings())


def test_a_base_that_answers_nan_is_told_from_a_rate_that_is_too_high():
    task = at(make_task(), 1, lambda answers: answers * float("nan"))
    with pytest.raises(DivergedError, match=r"step 1 .* so the base or the data are not finite"):
        find_region(task, settings())
    task = make_task()
    with torch.no_grad():
        next(iter(task.parameters.values())).fill_(float("nan"))
    with pytest.raises(DivergedError, match="the loss is nan at step 1 of 4; no step was taken"):
        find_region(task, settings(localizer="base_gradient"))

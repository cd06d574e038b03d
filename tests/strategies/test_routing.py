"""Grafting without task labels: what decides, what it costs, and what counts as right."""

import pytest
import torch

from cl_graft.banks.verify import verify
from cl_graft.storage import load_bank

ROUTED = "grafting_by_discriminant"

HIDDEN = 32
CLASSES = {"scope": 2, "topic": 5}


def test_the_bank_is_that_of_grafting_and_passes_verification(small_runs):
    own, told = (load_bank(small_runs.folder(n) / "bank") for n in (ROUTED, "grafting"))
    for entry, other in zip(own.entries, told.entries, strict=True):
        assert entry.owned.same_bits(other.owned)
        assert all(torch.equal(entry.head[key], other.head[key]) for key in other.head)
    report = verify(small_runs.folder(ROUTED))
    assert report.ok, report


def test_with_one_task_there_is_nothing_to_pick(small_runs):
    routed, told = (small_runs(n, tasks=["scope"]) for n in (ROUTED, "grafting"))
    assert routed.R == told.R
    assert routed.ece == told.ece
    assert routed.routed == [[1.0]]
    assert told.routed is None


def test_passes_are_counted(small_runs):
    result, told = small_runs(ROUTED), small_runs("grafting")
    assert (result.passes_per_row, told.passes_per_row) == (2.0, 1.0)
    three = {"tasks": ["scope", "topic", "banking"]}
    assert small_runs(ROUTED, **three).passes_per_row == 2.0
    for task, phases in result.passes.items():
        rows = 8 * CLASSES[task]
        assert phases == told.passes[task] | {"router": {"forward": rows, "forward_backward": 0}}


def test_a_task_adds_what_its_router_keeps(small_runs):
    kept, told = small_runs(ROUTED).bytes, small_runs("grafting").bytes
    # Of every class 4 bytes a feature, and three integers.
    more = {task: count * (4 * HIDDEN + 24) for task, count in CLASSES.items()}
    more["scope"] += 4 * HIDDEN**2  # the covariance
    assert {task: kept[task] - told[task] for task in told} == pytest.approx(more, abs=8)


def test_features_are_those_of_the_base_whatever_was_learned(kept_strategy, small_runs):
    strategy = kept_strategy(ROUTED)
    alone = kept_strategy(ROUTED, run_settings={"tasks": ["topic"]})
    known, of_topic = strategy.router.known, alone.router.known
    torch.testing.assert_close(known.means[2:], of_topic.means, rtol=0, atol=1e-6)


@pytest.mark.parametrize("right", [True, False])
def test_a_router_that_is_always_right_gives_the_scores_of_grafting_and_a_wrong_one_gives_0(
    kept_strategy, small_runs, right
):
    def before(strategy):
        def pick(features, known):
            own = int(strategy.experience.task_label)
            others = [label for label in strategy.positions() if label != own] or [own]
            return torch.full((len(features),), own if right else others[0])

        strategy.router.rule = pick

    scores = kept_strategy(ROUTED, before=before).evaluator.metrics[0]
    assert scores.share_routed(2)[-1] == [float(right)] * 2
    expected = small_runs("grafting").R[-1] if right else [0.0, 0.0]
    assert scores.R(2)[-1] == pytest.approx(expected)


def test_a_row_is_answered_by_the_task_that_was_picked_without_a_look_at_its_label(kept_strategy):
    strategy = kept_strategy(ROUTED)
    strategy.model.eval()
    strategy.is_training = False
    rows = torch.cat([entry.recorded_batch.inputs for entry in strategy.bank.entries])
    answers = []
    with torch.no_grad():
        for label in (0, 1):
            strategy.mbatch = [rows, torch.zeros(len(rows)), torch.full((len(rows),), label)]
            answers.append((strategy.forward(), strategy.answered_by))
        (logits, labels), (again, picked_again) = answers
        assert torch.equal(logits, again)
        assert torch.equal(labels, picked_again)
        for label in (0, 1):
            strategy.carry(label)
            told = strategy.model(rows, torch.full((len(rows),), label))
            picked = labels == label
            torch.testing.assert_close(logits[picked], told[picked], rtol=0, atol=1e-5)

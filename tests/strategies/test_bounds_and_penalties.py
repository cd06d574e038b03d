"""Baselines by their own definitions, where the outcome is known to the bit."""

import pytest
from slow_cases import slow, slow_but
from small_runs import SMALL

from cl_graft.models import load_model
from cl_graft.strategies.registry import STRATEGIES


def end(result):
    """The logits of all tasks after the last."""
    return {task: hashes["end"] for task, hashes in result.logit_hashes.items()}


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("ewc", {"ewc_lambda": 0}),
        *slow(
            ("lwf", {"alpha": 0}),
            ("ewc_online", {"ewc_lambda": 0}),
            ("si", {"si_lambda": 0}),
            ("mas", {"lambda_reg": 0}),
        ),
    ],
)
def test_without_weight_a_penalty_leaves_the_bits_of_naive(small_runs, name, own):
    plain = small_runs("naive")
    weightless = small_runs(name, own=own)
    assert weightless.R == plain.R
    assert end(weightless) == end(plain)


def test_a_penalty_with_weight_changes_what_is_learned_after_the_first_task(small_runs):
    plain = small_runs("naive")
    for name in ("ewc", "lwf"):
        weighed = small_runs(name)
        assert weighed.R[0] == plain.R[0]
        assert end(weighed) != end(plain)


# Of two tasks; `ewc` keeps two copies for each.
COPIES = {"ewc": 4, "mas": 2, "ewc_online": 2, "si": 3}


@pytest.mark.parametrize("name", slow_but(("ewc",), COPIES))
def test_a_penalty_stores_copies_of_the_weights_that_train_and_of_no_others(kept_strategy, name):
    strategy = kept_strategy(name)
    trained = sum(p.nbytes for p in strategy.model.parameters() if p.requires_grad)
    stored = STRATEGIES[name].storage_bytes(strategy)
    # The first task's copies lack the second task's head.
    assert 0.95 * COPIES[name] * trained < stored <= COPIES[name] * trained


def test_every_penalty_on_weights_is_known():
    penalties = {name for name, row in STRATEGIES.items() if row.family == "penalty"}
    assert penalties == {*COPIES, "o_lora"}


@pytest.mark.parametrize("name", ["joint", *slow("cumulative", "replay")])
def test_on_a_single_task_bounds_and_replay_are_naive(small_runs, name):
    alone = {"tasks": ["scope"]}
    assert end(small_runs(name, **alone)) == end(small_runs("naive", **alone))


def test_joint_learns_all_tasks_at_once_and_nothing_later(small_runs):
    joint = small_runs("joint")
    assert [list(phases) for phases in joint.passes.values()] == [["train"], ["train"]]
    rows = [phases["train"]["forward_backward"] for phases in joint.passes.values()]
    assert rows == [2 * 5 * 8, 0]
    assert joint.forgetting == 0.0
    hashes = joint.logit_hashes["scope"]
    assert hashes["learned"] == hashes["end"]


def test_cumulative_passes_as_often_over_each_row_as_its_task_takes(small_runs):
    cumulative = small_runs("cumulative")
    rows = [phases["train"]["forward_backward"] for phases in cumulative.passes.values()]
    assert rows == [5 * 8, 2 * 5 * 8]


def test_lwf_holds_one_copy_of_the_model_whatever_the_number_of_tasks(small_runs):
    naive = small_runs("naive")
    first, second = naive.bytes.values()
    held = list(small_runs("lwf").bytes.values())
    model = held[0] - 2 * first
    parameters = load_model(str(small_runs.model)).model.parameters()
    assert model >= sum(4 * p.numel() for p in parameters)
    assert held == [first + model + first, second + second]


@pytest.mark.parametrize("name", ["cumulative", *slow("replay")])
def test_what_keeps_every_row_holds_a_head_and_the_rows_of_a_task_more_with_each(small_runs, name):
    row = 8 * (2 * SMALL["max_length"] + 1)  # tokens, mask and label in int64
    classes = {"scope": 2, "topic": 5}
    assert small_runs(name).bytes == {
        task: head + SMALL["shots"] * classes[task] * row
        for task, head in small_runs("naive").bytes.items()
    }


def test_extra_passes_are_counted(small_runs):
    naive = small_runs("naive").passes["topic"]["train"]
    assert naive == {"forward_backward": 5 * 8, "forward": 0}
    rows = 5 * 8
    ewc = small_runs("ewc").passes["topic"]["train"]
    assert ewc == {"forward_backward": 5 * 8 + rows, "forward": 0}
    # The teacher answers the old head; the model answers both of its heads once more.
    lwf = small_runs("lwf").passes["topic"]["train"]
    assert lwf == {"forward_backward": 3 * 5 * 8, "forward": 5 * 8}

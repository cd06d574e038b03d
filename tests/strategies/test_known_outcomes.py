"""A stream on which each strategy's outcome is known: two divisions of the same words."""

import itertools
import json

import pytest
from small_runs import SMALL, Runs
from word_tasks import word_task

NAMES = ["one", "two"]
NOISE = 0.02
"""Of an average accuracy over two tasks of 128 test rows each, all of which can be learned."""


@pytest.fixture(scope="module")
def runs(still_bert, tmp_path_factory):
    tasks = tuple(word_task(name, seed=seed) for seed, name in enumerate(NAMES))
    key = json.dumps([NAMES, SMALL["shots"], SMALL["max_test"]])
    settings = {"tasks": NAMES, "steps": 100, "lr": 1.0, "max_length": 8}
    return Runs(still_bert, tmp_path_factory.mktemp("known"), settings, drawn={key: tasks})


def test_naive_learns_every_task_and_forgets(runs):
    naive = runs("naive")
    assert min(naive.R[i][i] for i in range(2)) > 0.95
    assert naive.forgetting > 0.01


def test_joint_is_below_no_other(runs):
    joint = runs("joint").average_accuracy
    assert joint > 0.98
    for name in ("naive", "cumulative"):
        assert runs(name).average_accuracy <= joint + NOISE, name


def test_replay_of_the_whole_past_is_cumulative_within_noise(runs):
    whole = runs("replay", own={"mem_size": 10_000})
    assert abs(whole.average_accuracy - runs("cumulative").average_accuracy) < NOISE
    assert whole.forgetting < runs("naive").forgetting


@pytest.mark.parametrize(
    ("name", "setting", "grid"),
    [("ewc", "ewc_lambda", (0, 100, 3000)), ("lwf", "alpha", (0, 1, 10))],
)
def test_forgetting_does_not_rise_with_the_weight_of_a_penalty(runs, name, setting, grid):
    forgotten = [runs(name, own={setting: weight}).forgetting for weight in grid]
    assert forgotten[0] == runs("naive").forgetting
    for less, more in itertools.pairwise(forgotten):
        assert more <= less + NOISE

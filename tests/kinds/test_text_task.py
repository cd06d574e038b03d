"""A task is consistent, has a fingerprint of its rows, and can be cut down by seed."""

import pickle
from dataclasses import replace
from itertools import pairwise
from unicodedata import normalize

import pytest

from cl_graft.errors import InputError
from cl_graft.kinds import Row, TextTask
from cl_graft.runtime.seeding import permutation

ROWS = tuple(Row(f"text number {number}", None, number % 2) for number in range(40))
ODD = (Row("a", None, 2),)
TASK = TextTask("reviews", ("bad", "good"), ROWS[:20], ROWS[20:26], ROWS[26:])


def test_the_fingerprint_changes_with_a_name_a_label_name_a_split_or_any_row():
    changed = [
        replace(TASK, name="other"),
        replace(TASK, label_names=("good", "bad")),
        replace(TASK, train=ROWS[:19]),
        replace(TASK, train=ROWS[:19], dev=ROWS[19:26]),
        replace(TASK, test=(*ROWS[26:-1], replace(ROWS[-1], label=0))),
        replace(TASK, test=(*ROWS[26:-1], replace(ROWS[-1], text="text number 39 "))),
    ]
    fingerprints = {task.fingerprint for task in [TASK, *changed]}
    assert len(fingerprints) == len(changed) + 1


def test_the_fingerprint_is_that_of_the_rows_and_not_of_settings_or_the_process():
    elsewhere = replace(TASK, max_length=64, source={"from": "elsewhere"})
    assert elsewhere.fingerprint == TASK.fingerprint
    assert pickle.loads(pickle.dumps(TASK)).fingerprint == TASK.fingerprint
    # Written down when the format was fixed: caches and results files hold fingerprints.
    assert TASK.fingerprint[:16] == "9239e61f9bf7035e"


@pytest.mark.parametrize(
    "name",
    [
        *("", "a/b", "a b", ".hidden", "a:b", "..", "x" * 101, "a\\b", "a\nb", "a\x1bb", "a*b"),
        *("\u0301a", "a\u202eb", "a\u200bb", "a\u200db", "\u200d"),
        *("a\u2215b", "a\uff0fb", "a\ud800", "\u00a0", "<b>", "a'b", "a\u0000"),
    ],
)
def test_a_name_that_is_no_file_name_is_refused(name: str):
    with pytest.raises(InputError, match="cannot name a file"):
        replace(TASK, name=name)


WORDS = ("café", "日本語", "हिन्दी", "ภาษาไทย", "العربية", "한국어", "x-2.b")


@pytest.mark.parametrize("name", WORDS)
def test_a_name_may_be_a_word_of_any_script_in_its_composed_form(name: str):
    assert replace(TASK, name=normalize("NFD", name)).name == normalize("NFC", name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_names": ("same", "same")}, "different label names"),
        ({"label_names": ("one",)}, "different label names"),
        ({"metric": "no such"}, "unknown metric"),
        ({"metric": "pearson"}, "is a classification task: metric 'pearson' does not fit it"),
        ({"label_names": ()}, "two or more different label names"),
        ({"kind": "regression", "metric": "pearson"}, "neither label names"),
        ({"kind": "summary"}, "unknown kind of task"),
        ({"dev": ()}, "no dev rows"),
        ({"test": ODD}, r"test row 1 has label 2, expected an integer in \[0, 2\)"),
        ({"test": (Row("a", None, True),)}, "label True"),
        ({"dev": (Row("a", "b", 1),)}, "dev row 1 has two texts, the first training row has one"),
        ({"max_length": 4}, "max_length must be at least 8"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(change: dict, message: str):
    with pytest.raises(InputError, match=message):
        replace(TASK, **change)


def test_limits_draw_by_seed_keep_the_order_and_are_recorded():
    limited = TASK.with_limits(seed=3, max_train=9, max_dev=4, max_test=5)
    assert (len(limited.train), len(limited.dev), len(limited.test)) == (9, 4, 5)
    assert [row for row in TASK.dev if row in limited.dev] == list(limited.dev)
    assert [row for row in TASK.test if row in limited.test] == list(limited.test)
    kept = {"seed": 3, "train": [9, 20], "dev": [4, 6], "test": [5, 14]}
    assert limited.source["limits"] == kept
    assert limited == TASK.with_limits(seed=3, max_train=9, max_dev=4, max_test=5)
    assert limited.test != TASK.with_limits(seed=4, max_test=5).test


def test_a_smaller_limit_keeps_a_part_of_what_a_larger_one_keeps():
    rows = [set(TASK.with_limits(seed=0, max_test=limit).test) for limit in range(1, 14)]
    assert all(smaller < larger for smaller, larger in pairwise(rows))


def test_a_limited_dev_split_keeps_every_class_and_the_permutations_rows_where_they_have_them():
    names = tuple(f"class {label}" for label in range(30))
    rows = tuple(Row(f"text {n}", None, n % 30 if n < 90 else 0) for n in range(400))
    task = TextTask("many", names, rows[:60], rows, rows[:60])
    dev = [set(task.with_limits(seed=0, max_dev=limit).dev) for limit in range(1, 400)]
    assert all(smaller < larger for smaller, larger in pairwise(dev))
    assert all(len({row.label for row in part}) == 30 for part in dev[29:])
    drawn = {rows[index] for index in permutation(400, 0, "max_dev")[:350].tolist()}
    assert len({row.label for row in drawn}) == 30
    assert dev[349] == drawn


def test_a_limit_that_empties_a_class_or_the_split_is_refused():
    with pytest.raises(InputError, match="no training row of class"):
        TASK.with_limits(seed=0, max_train=1)
    with pytest.raises(InputError, match="max_test must be at least 1, got 0"):
        TASK.with_limits(seed=0, max_test=0)

"""k rows a class, a dev split that always exists, and nothing in two splits."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_graft.data.few_shot import few_shot, hold_out_test
from cl_graft.errors import InputError
from cl_graft.kinds import Row
from cl_graft.kinds.text2text import AnswerRow

NAMES = ("no", "yes", "perhaps")


def rows_of(*counts: int) -> list[Row]:
    """Rows with `counts[c]` of class c, the classes mixed."""
    left = list(counts)
    rows: list[Row] = []
    while any(left):
        for label, count in enumerate(left):
            if count:
                left[label] -= 1
                rows.append(Row(f"row {len(rows)}", None, label))
    return rows


def draw(rows, **settings):
    """Draw from rows whose classes are the first of `NAMES`."""
    names = NAMES[: len({row.label for row in rows})]
    return few_shot(rows, **{"label_names": names, "data_seed": 0, **settings})


def counts(rows) -> dict:
    return dict(Counter(row.label for row in rows))


def test_k_rows_a_class_train_and_the_next_k_are_dev():
    chosen = draw(rows_of(50, 60, 70), shots=16)
    assert counts(chosen.train) == counts(chosen.dev) == {0: 16, 1: 16, 2: 16}
    assert chosen.rule["train_rows"] == {"no": 16, "yes": 16, "perhaps": 16}
    assert chosen.rule["dev"] == "the next 16 rows a class"
    assert "note" not in chosen.rule


def test_dev_never_holds_the_rows_of_one_class_alone_because_the_other_is_used_up():
    # As in CR, where the smaller class has 367 rows and the larger one 1,402.
    for shots in (350, 360, 366, 367):
        chosen = draw(rows_of(367, 1402), shots=shots)
        negative, positive = counts(chosen.dev)[0], counts(chosen.dev)[1]
        assert negative == positive >= 17
    assert counts(chosen.train) == {0: 349, 1: 349}
    assert chosen.rule["dev"] == "5% of the training rows"
    assert "the smallest class has no row to spare" in chosen.rule["note"]


def test_all_rows_train_but_for_5_percent_without_shots():
    chosen = draw(rows_of(200, 100), shots=None)
    assert counts(chosen.train) == {0: 190, 1: 95}
    assert counts(chosen.dev) == {0: 10, 1: 5}


def test_the_datas_own_dev_split_is_used_as_it_is_and_cut_to_the_shots():
    dev = [Row(f"dev {number}", None, number % 2) for number in range(20)]
    rows = rows_of(30, 30)
    whole = draw(rows, shots=None, dev=dev)
    assert (list(whole.train), list(whole.dev)) == (rows, dev)
    few = draw(rows, shots=30, dev=dev)
    assert counts(few.train) == {0: 30, 1: 30}
    assert set(few.dev) == set(dev)
    fewer = draw(rows, shots=4, dev=dev)
    assert counts(fewer.dev) == {0: 4, 1: 4}


@pytest.mark.parametrize(
    ("sizes", "shots", "message"),
    [
        ((9, 9, 0), 2, "there is no training row of perhaps"),
        ((9, 9), 0, "at least 1 row a class, got 0"),
        ((1, 1), 1, "too few to hold out"),
    ],
)
def test_rows_that_do_not_do_are_an_error_that_says_why(sizes, shots, message):
    with pytest.raises(InputError, match=message):
        draw(rows_of(*sizes), label_names=NAMES[: len(sizes)], shots=shots)


def test_a_class_that_is_too_small_gives_every_row():
    chosen = draw(rows_of(9, 90), shots=40)
    assert counts(chosen.train) == {0: 8, 1: 38}
    assert counts(chosen.dev) == {0: 1, 1: 2}
    assert chosen.rule["note"].startswith("fewer than 40 rows, all of which serve: no 9; dev is 5%")
    chosen = draw(rows_of(1, 90), shots=40)
    assert counts(chosen.train)[0] == 1
    assert chosen.rule["note"].endswith("dev has no row of no")


def test_a_dev_split_of_ones_own_with_one_class_alone_is_not_used_and_one_that_lacks_a_class_is():
    one = [Row(f"dev {number}", None, 1) for number in range(40)]
    chosen = draw(rows_of(40, 40), shots=20, dev=one)
    assert counts(chosen.dev) == {0: 1, 1: 1}
    assert "own dev split are of the class 'yes'" in chosen.rule["note"]
    two = [*one, Row("dev 40", None, 0)]
    chosen = draw(rows_of(9, 9, 9), shots=None, dev=two)
    assert set(chosen.dev) == set(two)
    assert chosen.rule["note"] == "dev has no row of perhaps"


def test_a_regression_counts_all_rows_together():
    rows = [Row(f"row {number}", None, number / 7) for number in range(100)]
    chosen = few_shot(rows, label_names=(), shots=40, data_seed=0)
    assert (len(chosen.train), len(chosen.dev)) == (40, 40)
    assert chosen.rule["train_rows"] == {"all": 40}


def test_a_smaller_k_is_a_part_of_a_larger_one_and_another_seed_is_another_sample():
    rows = rows_of(300, 300)
    small, middle, large = (set(draw(rows, shots=k, data_seed=7).train) for k in (16, 64, 128))
    assert small < middle < large
    assert small != set(draw(rows, shots=16, data_seed=8).train)


def test_the_sample_does_not_depend_on_the_order_of_the_label_names():
    rows = rows_of(100, 100)
    turned = [Row(row.text, None, 1 - int(row.label)) for row in rows]
    one = few_shot(rows, label_names=("no", "yes"), shots=16, data_seed=0)
    other = few_shot(turned, label_names=("yes", "no"), shots=16, data_seed=0)
    assert [row.text for row in one.train] == [row.text for row in other.train]


@given(
    sizes=st.lists(st.integers(2, 60), min_size=2, max_size=3),
    shots=st.none() | st.integers(1, 70),
    seed=st.integers(0, 5),
)
def test_train_and_dev_are_never_empty_share_no_row_and_keep_the_files_order(sizes, shots, seed):
    rows = rows_of(*sizes)
    names = NAMES[: len(sizes)]
    chosen = few_shot(rows, label_names=names, shots=shots, data_seed=seed)
    assert chosen.dev
    assert not set(chosen.train) & set(chosen.dev)
    assert set(counts(chosen.train)) == set(range(len(sizes)))
    # Every class stands in dev: one row, or within one row of a share that all classes have.
    assert set(counts(chosen.dev)) == set(range(len(sizes)))
    taken = counts(chosen.dev)
    whole = {label: taken[label] + count for label, count in counts(chosen.train).items()}
    least = max((taken[label] - 1) / rows for label, rows in whole.items())
    assert all(least <= (taken[label] + 1) / rows for label, rows in whole.items())
    for part in (chosen.train, chosen.dev):
        places = [rows.index(row) for row in part]
        assert places == sorted(places)


def test_a_held_out_test_split_is_a_fifth_and_shares_no_text_with_train():
    rows = [Row(f"text {number // 2}", None, number % 2) for number in range(200)]
    train, test = hold_out_test(rows, data_seed=0)
    assert (len(train), len(test)) == (160, 40)
    assert not {row.text for row in train} & {row.text for row in test}
    assert (train, test) == hold_out_test(rows, data_seed=0)
    assert test != hold_out_test(rows, data_seed=1)[1]
    with pytest.raises(InputError, match=r"no dev and no test split, .* all 2 rows"):
        hold_out_test(rows[:2], data_seed=0)


def test_a_rare_class_keeps_its_rows_to_train_and_every_larger_one_gives_a_fifth():
    for seed in range(5):
        rows = rows_of(100, 10, 1)
        train, test = hold_out_test(rows, data_seed=seed, label_names=NAMES)
        assert counts(train) == {0: 80, 1: 8, 2: 1}
        assert counts(test) == {0: 20, 1: 2}
    with pytest.raises(InputError, match="all 2 rows are of different classes"):
        hold_out_test(rows_of(1, 1), data_seed=0, label_names=NAMES)


def test_turns_that_are_scored_together_are_held_out_together():
    rows = [AnswerRow(f"text {n}", None, 0, ("a",), group=f"dialogue/{n // 4}") for n in range(80)]
    train, test = hold_out_test(rows, data_seed=0)
    assert len(test) == 16
    assert not {row.group for row in train} & {row.group for row in test}

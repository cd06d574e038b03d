"""Rows of similar length share batches, and nothing else changes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import quick
from torch.utils.data import TensorDataset

from cl_graft.runtime.batching import (
    WINDOW,
    BatchOrder,
    group_by_length,
    sort_by_length,
    text_lengths,
)
from cl_graft.runtime.seeding import generator
from cl_graft.training.examples import Examples

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=80)


def texts(lengths: list[int], *, longest: int = 10) -> torch.Tensor:
    """Encoded rows: row i consists of tokens i + 1."""
    inputs = torch.zeros(len(lengths), 2, longest, dtype=torch.int64)
    for row, length in enumerate(lengths):
        inputs[row, 0, :length] = row + 1
        inputs[row, 1, :length] = 1 + row % 2
    return inputs


@quick
@given(LENGTHS)
def test_rows_by_length_fall_and_equal_ones_keep_their_order(lengths):
    order = sort_by_length(torch.tensor(lengths)).tolist()
    assert order == sorted(range(len(lengths)), key=lambda row: -lengths[row])


@quick
@given(st.integers(1, WINDOW), st.integers(1, 8), st.integers(0, 3))
def test_batches_of_one_window_do_not_overlap_in_length(batches, batch_size, seed):
    rows = batches * batch_size
    lengths = torch.randint(1, 50, (rows,), generator=generator(seed, "lengths"))
    order = torch.randperm(rows, generator=generator(seed))
    done = group_by_length(
        order, lengths, batch_size=batch_size, generator=generator(seed, "groups")
    )
    spans = sorted((lengths[b].min(), lengths[b].max()) for b in done.split(batch_size))
    assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_whole_batches_of_later_epochs_are_grouped_too():
    lengths = torch.arange(100) % 10
    order = BatchOrder(100, 8, 0, lengths=lengths)
    spread = [int(lengths[b].max() - lengths[b].min()) for b in map(order, range(50))]
    plain = BatchOrder(100, 8, 0)
    loose = [int(lengths[b].max() - lengths[b].min()) for b in map(plain, range(50))]
    assert sum(spread) < 0.4 * sum(loose)


@quick
@given(LENGTHS, st.data())
def test_rows_picked_from_tensors_are_those_stacked_one_by_one(lengths, data):
    inputs, targets = texts(lengths), torch.arange(len(lengths))
    dataset = TensorDataset(inputs, targets)
    rows = data.draw(st.permutations(range(len(lengths))))
    slow, fast = Examples(dataset, rows), Examples(dataset, rows, tensors=(inputs, targets))
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6))
    for one, other in zip(slow.batch(places), fast.batch(places), strict=True):
        assert torch.equal(one, other)
    assert slow.fingerprint() == fast.fingerprint()
    for one, other in zip(slow.split(0.3, seed=0), fast.split(0.3, seed=0), strict=True):
        assert one.rows == other.rows
        assert one.fingerprint() == other.fingerprint()
    assert slow.sort_by_length(places) == places
    assert [lengths[rows[place]] for place in fast.sort_by_length(places)] == sorted(
        (lengths[rows[place]] for place in places), reverse=True
    )


def test_epochs_are_shuffled_anew_and_batches_of_nothing_are_refused():
    order = BatchOrder(30, 30, 0)
    assert order(0) != order(1)
    assert order(0) != BatchOrder(30, 30, 0, "other")(0)
    for rows, batch_size in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            BatchOrder(rows, batch_size, 0)


@quick
@given(LENGTHS, st.booleans(), st.integers(1, 12), st.integers(0, 3), st.data())
def test_epochs_cover_every_row_once_and_any_batch_can_be_had_without_walking_there(
    lengths, grouped, batch_size, seed, data
):
    rows, epochs = len(lengths), 3
    known = torch.tensor(lengths) if grouped else None
    order, fresh = (BatchOrder(rows, batch_size, seed, "task", lengths=known) for _ in range(2))
    batches = [order(step) for step in range(-(-rows * epochs // batch_size))]
    assert all(len(batch) == batch_size for batch in batches)
    seen = [row for batch in batches for row in batch]
    for epoch in range(epochs):
        assert sorted(seen[epoch * rows : (epoch + 1) * rows]) == list(range(rows))
    for step in data.draw(st.lists(st.integers(0, len(batches) - 1), max_size=5)):
        assert fresh(step) == batches[step]


def test_the_length_of_a_text_is_its_tokens_without_padding_and_others_have_none():
    found = text_lengths(texts([3, 1, 10]))
    assert found is not None
    assert found.tolist() == [3, 1, 10]
    for other in (torch.zeros(4, 2, 5), torch.zeros(4, 3, 5).long(), torch.zeros(4, 2).long()):
        assert text_lengths(other) is None

"""The batches of a text stream: what stands where, and whose bits depend on it."""

from __future__ import annotations

import pytest
import torch
from avalanche.core import SupervisedPlugin
from tiny_streams import learner, mlp, text_learner, vector_stream

from cl_graft import load_model, text_stream
from cl_graft.data import load_task
from cl_graft.kinds.text_encoding import encode
from cl_graft.runtime.batching import text_lengths
from cl_graft.strategies import TextBatches


class Seen(SupervisedPlugin, supports_distributed=False):
    """Keeps the training batches of a strategy."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def after_training_iteration(self, strategy, **kwargs):
        self.batches.append([tensor.clone() for tensor in strategy.mbatch])


def batches(run, *, task=0):
    """Learn a task and return inputs, targets and task labels of every training batch."""
    seen = Seen()
    run.strategy.plugins.append(seen)
    run.strategy.train(run.train_stream[task])
    return seen.batches


@pytest.fixture(scope="module")
def stream(tiny_bert):
    task = load_task("topic", shots=8, data_seed=0, max_test=30)
    loaded = load_model(str(tiny_bert))
    return task, loaded.tokenizer, text_stream([task], loaded.tokenizer, family="encoder")


def test_dev_and_test_rows_stand_by_length_and_training_rows_as_in_the_task(stream):
    _, _, made = stream
    (encoded,) = made.tasks
    for name in ("valid", "test"):
        lengths = text_lengths(encoded.splits[name][0])
        assert lengths is not None
        assert (lengths.diff() <= 0).all()
        assert lengths.unique().numel() > 1
    assert encoded.rows["train"].tolist() == list(range(len(encoded.rows["train"])))


@pytest.mark.parametrize(
    ("name", "split"), [("train", "train"), ("valid", "dev"), ("test", "test")]
)
def test_every_encoded_row_is_the_row_that_its_number_names(stream, name, split):
    task, tokenizer, made = stream
    (encoded,) = made.tasks
    inputs, targets = encoded.splits[name]
    rows = [getattr(task, split)[number] for number in encoded.rows[name].tolist()]
    again = encode(rows, tokenizer, family="encoder", max_length=inputs.shape[-1])
    assert torch.equal(inputs, again)
    assert targets.tolist() == [row.label for row in rows]


def test_training_batches_are_equally_large_and_cover_every_row(tiny_bert):
    run = text_learner(tiny_bert, train_epochs=3, train_mb_size=5, plugins=[TextBatches(0)])
    inputs, targets = run.train_stream[0].encoded
    seen = batches(run)
    assert {len(batch[0]) for batch in seen} == {5}
    assert len(seen) == 3 * -(-len(inputs) // 5)
    where = {row.numpy().tobytes(): number for number, row in enumerate(inputs)}
    numbers = [where[row.numpy().tobytes()] for batch in seen for row in batch[0]]
    assert {n: targets[n] for n in numbers} == dict(
        zip(numbers, (y for batch in seen for y in batch[1]), strict=True)
    )
    assert set(numbers[: len(inputs) + 4]) == set(range(len(inputs)))
    assert all(not batch[2].any() for batch in seen)


def test_the_order_of_training_rows_is_the_same_alone_and_after_other_tasks(tiny_bert):
    names = ("scope", "topic")
    both = text_learner(tiny_bert, names, plugins=[TextBatches(0)])
    both.strategy.train(both.train_stream[0])
    later = batches(both, task=1)
    alone = batches(text_learner(tiny_bert, names[1:], plugins=[TextBatches(0)]))
    assert all(torch.equal(one[0], other[0]) for one, other in zip(later, alone, strict=True))


def test_grouped_training_batches_hold_rows_of_similar_length(tiny_bert):
    def padding(group_by_length: bool) -> int:
        plugin = TextBatches(0, group_by_length=group_by_length)
        run = text_learner(
            tiny_bert, max_length=64, train_epochs=4, train_mb_size=4, plugins=[plugin]
        )
        lengths = [text_lengths(batch[0]) for batch in batches(run)]
        return sum(int((length.max() - length).sum()) for length in lengths if length is not None)

    assert padding(True) < 0.5 * padding(False)


def test_other_data_keep_avalanches_loader():
    stream = vector_stream(labels=[0, 1])
    dev = {"dev": stream.streams["test"]}  # so that no training rows are set aside
    run = learner(mlp(), stream, plugins=[TextBatches(0)], grafting=dev)
    seen = batches(run)
    assert sum(len(batch[0]) for batch in seen) == 32


def test_a_loader_that_another_plugin_brings_stands(tiny_bert):
    from avalanche.training.plugins import ReplayPlugin

    run = text_learner(
        tiny_bert, plugins=[TextBatches(0), ReplayPlugin(mem_size=8)], train_epochs=1
    )
    run.strategy.train(run.train_stream[0])
    labels = torch.cat([batch[2] for batch in batches(run, task=1)])
    assert set(labels.tolist()) == {0, 1}

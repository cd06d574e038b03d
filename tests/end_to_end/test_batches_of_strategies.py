"""Dense run and localizer read batches as the strategy does, whatever the targets are."""

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import AvalancheDataset, ConstantSequence, DataAttribute
from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from tiny_streams import naive_strategy, quick, quiet_evaluator, sgd
from torch import nn
from torch.utils.data import Dataset

from cl_graft import FineTuning, GraftingPlugin
from cl_graft.errors import InputError
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.strategies.stream_scores import StreamScores


class Rows(Dataset):
    """Given items; those of AvalancheDataset's attributes are appended to tuples."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


def stream(make_item, *, tasks=2, rows=40, collate=None):
    """A benchmark whose items a function makes of (number of the task, vector, class)."""
    streams = {}
    for split, first in (("train", 0), ("test", 100)):
        streams[split] = []
        for task in range(tasks):
            generator = torch.Generator().manual_seed(first + task)
            targets = torch.arange(rows) % 2
            inputs = torch.randn(rows, 6, generator=generator)
            inputs[:, task] += 4.0 * targets
            items = [make_item(x, y) for x, y in zip(inputs, targets.tolist(), strict=True)]
            labels = DataAttribute(
                ConstantSequence(task, rows), "targets_task_labels", use_in_getitem=True
            )
            streams[split].append(
                AvalancheDataset([Rows(items)], data_attributes=[labels], collate_fn=collate)
            )
    return with_task_labels(benchmark_from_datasets(**streams))


class Masked(nn.Module):
    """Answers the mean of the values that a mask keeps; without one, of all values."""

    def __init__(self, outputs=2):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, outputs))

    def forward(self, values, mask=None):
        return self.layers(values if mask is None else values * mask)


class OfDictionaries(Naive):
    """Reads batches as Avalanche's examples for transformers do."""

    mb_x = property(lambda self: self.mbatch["values"])
    mb_y = property(lambda self: self.mbatch["labels"])

    def _unpack_minibatch(self):
        self.mbatch = {name: part.to(self.device) for name, part in self.mbatch.items()}

    def forward(self):
        return self.model(self.mb_x, mask=self.mbatch["mask"])


def collate(items):
    return {name: torch.stack([torch.as_tensor(item[name]) for item in items]) for name in items[0]}


def masked_item(x, y):
    return {"values": x, "mask": (x.abs() < 5).float(), "labels": y}


class Watch(SupervisedPlugin, supports_distributed=True):
    """Keeps the outputs of an evaluation."""

    def __init__(self):
        super().__init__()
        self.outputs = []

    def after_eval_iteration(self, strategy, **kwargs):
        self.outputs.append(strategy.mb_output)


def learned(strategy_class, benchmark, *, model=None, dev=False, **chosen):
    """Train two experiences, and hash the outputs of the first one's rows after each."""
    model = model or Masked()
    dense = FineTuning(steps=20, batch_size=8, lr=0.1, evaluations=1)
    dev_stream = benchmark.streams["test"] if dev else None
    grafting = GraftingPlugin(quick(density=0.2, fine_tuning=dense), dev=dev_stream)
    watch = Watch()
    settings = {"model": model, "optimizer": sgd(model), "train_mb_size": 8, "train_epochs": 2}
    settings |= {"plugins": [grafting, watch], "evaluator": quiet_evaluator()}
    strategy = strategy_class(**(settings | chosen))
    hashes = []
    for experience in benchmark.streams["train"]:
        strategy.train(experience)
        watch.outputs.clear()
        strategy.eval(benchmark.streams["test"][:1])
        assert watch.outputs
        hashes.append(hash_tensors({str(n): each for n, each in enumerate(watch.outputs)}))
    return grafting.bank, hashes


@pytest.mark.parametrize("dev", [True, False])
def test_batches_that_are_dictionaries_are_read_by_the_strategy(dev):
    benchmark = stream(masked_item, collate=collate)
    bank, hashes = learned(OfDictionaries, benchmark, dev=dev)
    assert [entry.label for entry in bank.entries] == [0, 1]
    assert hashes[0] == hashes[1]
    assert bank.entries[0].recorded_batch is None
    assert bank.entries[0].metadata["dense_dev"] >= (0.7 if dev else 0)


def test_the_loaders_collate_function_makes_the_batches():
    def doubled(items):
        inputs, targets, labels = zip(*items, strict=True)
        return torch.stack(inputs) * 2, torch.tensor(targets), torch.tensor(labels)

    item = lambda x, y: (x, y)  # noqa: E731
    own, _ = learned(Naive, stream(item, collate=doubled))
    same, _ = learned(Naive, stream(lambda x, y: (2 * x, y)))
    assert own.entries[0].owned.same_bits(same.entries[0].owned)


def test_a_loss_that_a_strategy_computes_itself_is_the_one_that_is_trained():
    class Turned(Naive):
        def criterion(self):
            return self._criterion(self.mb_output, 1 - self.mb_y)

    item = lambda x, y: (x, y)  # noqa: E731
    turned, _ = learned(Turned, stream(item), dev=True)
    plain, _ = learned(Naive, stream(item), dev=True)
    told, other = (bank.entries[0].metadata["dense_dev"] for bank in (turned, plain))
    assert told < 0.2
    assert other > 0.8


@pytest.mark.parametrize(
    ("make_item", "collate_fn"),
    [(masked_item, collate), (lambda x, y: (x[:3], y), None)],
    ids=["dictionaries without overriding", "inputs of another size"],
)
def test_batches_that_cannot_be_learned_are_refused_before_anything_is_computed(
    make_item, collate_fn
):
    calls = []

    class Counted(Masked):
        def forward(self, *values, **named):
            calls.append(1)
            return super().forward(*values, **named)

    with pytest.raises(InputError, match="grafting cannot learn from the batches of Naive"):
        learned(Naive, stream(make_item, collate=collate_fn), model=Counted())
    assert len(calls) <= 1


TARGETS = {
    "several labels a row": (
        lambda x, y: (x, torch.tensor([y, 1 - y, 1.0])),
        nn.BCEWithLogitsLoss(),
        lambda: Masked(3),
    ),
    "a number": (
        lambda x, y: (x, float(y)),
        nn.MSELoss(),
        lambda: nn.Sequential(Masked(1), Flat()),
    ),
    "classes at tokens": (
        lambda x, y: (x, torch.tensor([y, 1, 0])),
        nn.CrossEntropyLoss(),
        lambda: nn.Sequential(Masked(6), nn.Unflatten(1, (2, 3))),
    ),
}


class Flat(nn.Module):
    def forward(self, x):
        return x[:, 0].double()


@pytest.mark.parametrize("targets", TARGETS)
def test_where_targets_are_no_class_ids_dev_is_scored_by_the_loss(targets):
    make_item, criterion, make = TARGETS[targets]
    bank, hashes = learned(Naive, stream(make_item), model=make(), criterion=criterion)
    assert {entry.metadata["metric"] for entry in bank.entries} == {"negative loss"}
    assert hashes[0] == hashes[1]
    first = bank.entries[0]
    assert first.metadata["dense_dev"] < 0
    assert first.metadata["temperature"] is None
    assert len(first.recorded_batch.logits) > 0


def test_scores_of_targets_that_are_no_class_ids_need_a_metric():
    make_item, criterion, make = TARGETS["a number"]
    benchmark, model = stream(make_item), make()
    for metrics, told in (({}, True), ({0: "pearson", 1: "pearson"}, False)):
        scores = StreamScores(metrics)
        strategy = naive_strategy(model, criterion=criterion, evaluator=quiet_evaluator(scores))
        if told:
            with pytest.raises(InputError, match=r"StreamScores\(\{0: 'pearson'\}\)"):
                strategy.eval(benchmark.streams["test"])
        else:
            strategy.eval(benchmark.streams["test"])
            assert all(-1 <= value <= 1 for value in scores.baseline(2))

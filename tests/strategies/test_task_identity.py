"""What determines a dense run's outcome stands in its identity, and nothing that does not."""

import functools
from dataclasses import replace

import pytest
import torch
from answer_data import answer_folder
from answer_tasks import question_task
from avalanche.models import SimpleMLP
from small_tasks import MemoryCache
from tiny_streams import learner, quick, vector_stream
from torch import nn
from torch.nn import functional

from cl_graft import load_task, text_model, text_stream
from cl_graft.kinds.text2text import AnswerRow
from cl_graft.models import load_model
from cl_graft.strategies.experience_tasks import make_learnable_task, make_stream_task


class Net(nn.Module):
    def __init__(self, activation):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(12, 8), nn.Linear(8, 2)
        self.activation = activation

    def forward(self, x):
        return self.last(self.activation(self.first(x)))


class Other(Net):
    """The same weights under the same names, used otherwise."""

    def forward(self, x):
        return self.last(self.activation(self.first(x))) * 2


def smoothed(amount):
    def loss(logits, targets):
        return functional.cross_entropy(logits, targets, label_smoothing=amount)

    return loss


def holding(*held):
    def loss(logits, targets):
        return functional.cross_entropy(logits, targets) * len(held)

    return loss


def make_task(model=None, criterion=None, keep=None):
    stream = vector_stream(labels=[0])
    return make_learnable_task(
        model or Net(nn.ReLU()),
        stream.streams["train"][0],
        label=0,
        criterion=criterion or nn.CrossEntropyLoss(),
        base="the base",
        device=torch.device("cpu"),
        dev=stream.streams["test"][0],
        keep=keep,
    )


OTHERS = {
    "weights of classes": {"criterion": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0]))},
    "a setting of the loss": {"criterion": nn.CrossEntropyLoss(label_smoothing=0.1)},
    "a partial loss": {
        "criterion": functools.partial(functional.cross_entropy, label_smoothing=0.1)
    },
    "what a loss encloses": {"criterion": smoothed(0.2)},
    "a set, a class and a routine": {"criterion": holding({"b", "a"}, nn.Linear, torch.relu)},
    "another amount": {"criterion": smoothed(0.3)},
    "a lambda": {"criterion": lambda logits, targets: (logits.sum(1) - targets).square().mean()},
    "another lambda": {"criterion": lambda logits, targets: (logits.sum(1) - targets).abs().mean()},
    "which parameters may move": {"keep": lambda name: name.startswith("last")},
    "an activation": {"model": Net(nn.GELU())},
    "the setting of an activation": {"model": Net(nn.LeakyReLU(0.3))},
    "the code of forward": {"model": Other(nn.ReLU())},
}


def test_computations_are_told_apart_from_one_another():
    tasks = [make_task(), *(make_task(**changes) for changes in OTHERS.values())]
    assert len({task.identity for task in tasks}) == len(tasks)
    assert len({task.content for task in tasks}) == 1  # the draws are the same


def test_the_same_computation_made_again_has_the_same_identity():
    for changes in (
        lambda: {},
        lambda: {"criterion": smoothed(0.2)},
        lambda: {"criterion": holding({"b", "a"}, [1, (2.0, None)], nn.Linear, torch.relu)},
        lambda: {"model": Net(nn.GELU())},
        lambda: {"keep": lambda name: "bias" not in name},
    ):
        assert make_task(**changes()).identity == make_task(**changes()).identity


def corrected(rows):
    """Give the first row another right answer beside its first one."""
    row = rows[0]
    if isinstance(row, AnswerRow):
        return (replace(row, targets=(*row.targets, "both")), *rows[1:])
    spot = row.text_pair.split(" ")[0]
    return (replace(row, answers=(*row.answers, (spot, 0))), *rows[1:])


@pytest.mark.parametrize("kind", ["text2text", "extractive_qa"])
def test_what_a_scorer_compares_with_is_part_of_the_identity(kind, tiny_gpt2, tiny_bert, tmp_path):
    if kind == "text2text":
        answer_folder(tmp_path / "input", "input")
        task, folder, family = load_task("input", data=tmp_path, warn=False), tiny_gpt2, "causal_lm"
    else:
        task, folder, family = question_task(), tiny_bert, "encoder"

    def learnable(task):
        loaded = load_model(str(folder), family=family)
        stream = text_stream([task], loaded.tokenizer, family=family)
        model = text_model(loaded, stream, seed=0)
        return make_stream_task(model, stream, 0, base="the base", seed=0)

    plain = learnable(task)
    assert learnable(replace(task, test=corrected(task.test))).identity == plain.identity
    found = learnable(replace(task, dev=corrected(task.dev)))
    assert found.content == plain.content  # the draws are the same
    assert found.identity != plain.identity


def test_the_mode_of_a_model_is_no_part_of_a_computation():
    model = Net(nn.ReLU())
    assert make_task(model.eval()).identity == make_task(model.train()).identity


def test_a_plugin_with_another_loss_does_not_take_the_dense_run_of_the_first():
    cache, found = MemoryCache(), []
    for weight in ([1.0, 1.0], [1.0, 50.0]):
        torch.manual_seed(0)
        run = learner(
            SimpleMLP(num_classes=2, input_size=12, hidden_size=16),
            vector_stream(labels=[0]),
            settings=quick(retrain=False),
            grafting={"cache": cache},
            criterion=nn.CrossEntropyLoss(weight=torch.tensor(weight)),
        )
        run.strategy.train(run.train_stream[0])
        found.append(run.plugin.bank.entries[0].owned)
    assert not found[0].same_bits(found[1])

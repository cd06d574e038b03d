"""The user's optimiser trains the region and the head, and is given back afterwards."""

import pytest
import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import LRSchedulerPlugin
from slow_cases import slow
from tiny_streams import base_tensors, quick, text_learner, vector_stream
from tiny_streams import learner as vector_learner
from torch import nn

from cl_graft.grafts.graft import find_parameters


class Watch(SupervisedPlugin):
    """Note what the optimiser holds while an experience trains."""

    def __init__(self):
        super().__init__()
        self.optimizers, self.shapes, self.states, self.rates = [], [], [], []
        self.experiences = []

    def before_training_iteration(self, strategy, **kwargs):
        optimizer, groups = strategy.optimizer, strategy.optimizer.param_groups
        self.experiences.append(strategy.clock.train_exp_counter)
        self.optimizers.append(optimizer)
        self.shapes.append([[tuple(p.shape) for p in group["params"]] for group in groups])
        self.states.append(len(optimizer.state))
        self.rates.append([group["lr"] for group in groups])


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5)


def adamw_in_groups(model):
    """Decay and no-decay groups; Avalanche puts new heads into the group of their module."""
    heads = [p for n, p in model.named_parameters() if ".heads." in n]
    body = [(n, p) for n, p in model.named_parameters() if ".heads." not in n]
    decayed = [p for _, p in body if p.dim() > 1]
    plain = [p for _, p in body if p.dim() == 1]
    groups = [
        {"params": decayed, "weight_decay": 0.5},
        {"params": [*plain, *heads], "weight_decay": 0.0, "lr": 0.02},
    ]
    return torch.optim.AdamW(groups, lr=0.01)


OPTIMIZERS = [adamw, *slow(momentum, adam)]


def parameter_ids(optimizer):
    return [[id(p) for p in group["params"]] for group in optimizer.param_groups]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_optimizer_holds_the_region_and_the_head_while_a_task_trains(tiny_bert, optimizer):
    watch = Watch()
    run = text_learner(tiny_bert, optimizer=optimizer, plugins=[watch]).learn()
    starts = [0, watch.experiences.index(1), len(watch.shapes)]
    for place, entry in enumerate(run.plugin.bank.entries):
        head = [tuple(entry.head[name].shape) for name in ("weight", "bias")]
        for shapes in watch.shapes[starts[place] : starts[place + 1]]:
            assert shapes == [[(len(entry.owned),), *head]]
        assert watch.states[starts[place]] == 0
        assert watch.states[starts[place] + 1] == 3
    assert all(held is run.strategy.optimizer for held in watch.optimizers)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_optimizer_gets_its_own_parameters_back(tiny_bert, optimizer):
    run = text_learner(tiny_bert, optimizer=optimizer).learn()
    held = run.strategy.optimizer
    assert parameter_ids(held) == [[id(p) for p in run.model.parameters()]]
    assert len(held.state) == 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_bit_outside_the_regions_changes(tiny_bert, optimizer):
    run = text_learner(tiny_bert, optimizer=optimizer)
    before = base_tensors(run.unwrapped)
    run.learn()
    owned = run.plugin.bank.owned().masks()
    after = base_tensors(run.unwrapped)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        may_change = owned.get(name, torch.tensor(False))
        assert not ((tensor != after[name]) & ~may_change).any()
    run.plugin.carry(run.model, None)
    assert all(torch.equal(before[n], t) for n, t in base_tensors(run.unwrapped).items())


def test_a_head_of_a_finished_task_is_frozen(tiny_bert):
    run = text_learner(tiny_bert, optimizer=adamw).learn()
    entry = run.plugin.bank.entries[0]
    now = run.unwrapped.heads["0"].state_dict()
    assert all(torch.equal(now[name], kept) for name, kept in entry.head.items())


def test_groups_with_their_own_settings_come_back_as_they_were():
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))
    watch = Watch()
    stream = vector_stream(labels=[0, 1, 2])
    run = vector_learner(model, stream, optimizer=adamw_in_groups, plugins=[watch])
    groups = parameter_ids(run.strategy.optimizer)
    run.learn()
    assert parameter_ids(run.strategy.optimizer) == groups
    assert [g["weight_decay"] for g in run.strategy.optimizer.param_groups] == [0.5, 0.0]
    assert [g["lr"] for g in run.strategy.optimizer.param_groups] == [0.01, 0.02]
    assert all([len(group) for group in shapes] == [1, 0] for shapes in watch.shapes)


def test_the_last_group_holds_the_head_with_its_own_settings(tiny_bert):
    def two_groups(model):
        groups = [{"params": list(model.parameters())}, {"params": [], "lr": 0.0}]
        return torch.optim.SGD(groups, lr=0.1)

    watch = Watch()
    run = text_learner(tiny_bert, optimizer=two_groups, plugins=[watch]).learn()
    for shapes in watch.shapes:
        assert [len(group) for group in shapes] == [1, 2]
    dense = text_learner(tiny_bert, settings=quick(retrain=False, head_refit_rows=0)).learn()
    for own, other in zip(run.plugin.bank.entries, dense.plugin.bank.entries, strict=True):
        assert all(torch.equal(own.head[name], other.head[name]) for name in own.head)
        assert not own.owned.same_bits(other.owned)


def test_a_frozen_model_stays_frozen():
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))
    model[0].bias.requires_grad_(False)
    run = vector_learner(model, vector_stream(labels=[0, 1, 2])).learn()
    assert [p.requires_grad for p in model.parameters()] == [True, False, True, True]
    assert all(p.grad is None for p in find_parameters(model, run.plugin.bank.layout).values())


def test_a_schedule_moves_the_rate_of_the_region(tiny_bert):
    watch = Watch()
    optimizers = []

    def optimizer(model):
        optimizers.append(torch.optim.SGD(model.parameters(), lr=0.4))
        return optimizers[0]

    run = text_learner(tiny_bert, optimizer=optimizer, train_epochs=3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizers[0], step_size=1, gamma=0.5)
    run.strategy.plugins[1:1] = [LRSchedulerPlugin(scheduler), watch]
    run.learn(upto=1)
    per_epoch = len(watch.rates) // 3
    assert [rates[0] for rates in watch.rates[::per_epoch]] == [0.4, 0.2, 0.1]
    assert run.strategy.optimizer.param_groups[0]["lr"] == 0.4

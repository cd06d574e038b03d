"""GraftingContinual in Naive's place, where Avalanche's own tests put a strategy to odd uses."""

import pytest
import torch
from avalanche.models import MultiHeadClassifier, SimpleMLP
from avalanche.models.dynamic_modules import DynamicModule
from avalanche.training.plugins import ReplayPlugin
from head_models import accuracy
from tiny_streams import learner, multi_head, quick, vector_stream
from torch import nn

from cl_graft import load_bank, save_bank
from cl_graft.errors import WrongArchitecture
from cl_graft.grafts.graft import find_parameters
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.runtime.run_context import RunContext

DIFFERENT = [(0, 1), (2, 3), (4, 5)]


def group_of(parameter, optimizer):
    """Return the places of the groups that hold a parameter."""
    return [
        place
        for place, group in enumerate(optimizer.param_groups)
        if any(each is parameter for each in group["params"])
    ]


def test_a_model_that_is_only_a_multi_head_classifier_trains_and_its_heads_stay_in_the_optimizer():
    model = MultiHeadClassifier(in_features=12)
    run = learner(model, vector_stream(labels=[0, 1, 2], classes=DIFFERENT), train_epochs=4)
    for experience in run.train_stream:
        run.strategy.train(experience)
        for parameter in model.parameters():
            assert group_of(parameter, run.strategy.optimizer) == [0]
    run.strategy.eval(run.test_stream)
    assert min(accuracy(run, j) for j in range(3)) > 0.7
    assert [len(entry.owned) for entry in run.plugin.bank.entries] == [0, 0, 0]


def with_groups(model):
    """Give the classifier and the features groups of their own."""
    parts = [[p for n, p in model.named_parameters() if part in n] for part in ("class", "feat")]
    rates = (0.1, 0.05)
    return torch.optim.SGD([{"params": p, "lr": lr} for p, lr in zip(parts, rates, strict=True)])


def test_modules_and_parameter_groups_that_are_added_by_hand_are_taken_in():
    model = multi_head()
    stream = vector_stream(labels=[0, 1, 2], classes=DIFFERENT)
    run = learner(model, stream, optimizer=with_groups, settings=quick(density=0.2), train_epochs=4)
    run.strategy.train(run.train_stream[0])
    before = run.hashes()[0]
    coordinates = run.plugin.bank.entries[0].owned.region.index
    model.add_module("added", nn.Linear(10, 10))
    optimizer = run.strategy.optimizer
    optimizer.add_param_group({"params": list(model.added.parameters()), "lr": 0.01})
    for experience in list(run.train_stream)[1:]:
        run.strategy.train(experience)
        for name, parameter in model.named_parameters():
            place = next(i for i, part in enumerate(("class", "feat", "added")) if part in name)
            assert group_of(parameter, optimizer) == [place]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.05, 0.01]
    assert run.hashes()[0] == before
    bank = run.plugin.bank
    assert bank.layout.names[-2:] == ("added.weight", "added.bias")
    assert torch.equal(bank.entries[0].owned.region.index, coordinates)


class Deeper(nn.Module):
    """Features that may get another layer in front of a classifier."""

    def __init__(self, *, deep):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(12, 16), nn.Tanh())
        self.more = nn.Linear(16, 16) if deep else nn.Identity()
        if deep:
            nn.init.eye_(self.more.weight)
            nn.init.zeros_(self.more.bias)
        self.classifier = nn.Linear(16, 2)

    def forward(self, x):
        return self.classifier(self.more(self.features(x)))


def built(*, deep):
    torch.manual_seed(0)
    shallow = Deeper(deep=False)
    if deep:
        deeper = Deeper(deep=True)
        deeper.load_state_dict(shallow.state_dict(), strict=False)
        return deeper
    return shallow


@pytest.mark.parametrize("mode", ["prefix", "isolated"])
def test_new_parameters_in_the_middle_of_a_model_are_trained_and_kept(mode, tmp_path):
    settings = quick(density=0.3, mode=mode)
    benchmark = vector_stream(labels=[0, 1, 2])
    run = learner(built(deep=False), benchmark, settings=settings, train_epochs=4)
    run.strategy.train(run.train_stream[0])
    run.model.more = built(deep=True).more
    run.strategy.train(run.train_stream[1])
    expected = run.hashes()[:2]
    bank = run.plugin.bank
    touched = {name for name, *_ in bank.entries[1].owned.region.by_parameter()}
    assert "more.weight" in touched
    for position, entry in enumerate(bank.entries):
        run.plugin.carry(run.model, position)
        assert hash_tensors(find_parameters(run.model, bank.layout)) == entry.weights_sha256
    save_bank(bank, tmp_path / "bank")
    opened = {"bank": load_bank(tmp_path / "bank")}
    again = learner(built(deep=True), benchmark, settings=settings, grafting=opened, train_epochs=4)
    assert again.hashes()[:2] == expected
    run.strategy.train(run.train_stream[2])
    again.strategy.train(again.train_stream[2])
    assert run.hashes()[:2] == expected
    assert again.hashes() == run.hashes()


class Wider(DynamicModule):
    """A layer that Avalanche widens with every experience."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 4)

    def adaptation(self, experience):
        if self.training:
            self.layer = nn.Linear(12, self.layer.out_features + 2)

    def forward(self, x):
        return self.layer(x)[:, :2]


def test_a_parameter_that_changes_its_shape_is_refused_before_anything_is_trained():
    run = learner(Wider(), vector_stream(labels=[0, 1]))
    run.strategy.train(run.train_stream[0])
    told = []
    run.plugin._context = RunContext(progress=lambda *step: told.append(step))
    with pytest.raises(WrongArchitecture, match=r"layer.weight had the shape \(6, 12\)"):
        run.strategy.train(run.train_stream[1])
    assert not told
    assert len(run.plugin.bank) == 1


def test_replay_fills_its_memory_beside_grafting():
    memory = ReplayPlugin(mem_size=20)
    model = SimpleMLP(num_classes=6, input_size=12, hidden_size=10)
    stream = vector_stream(labels=[0, 1, 2], classes=DIFFERENT)
    run = learner(model, stream, plugins=[memory])
    for experience in run.train_stream:
        run.strategy.train(experience)
        assert sum(len(rows) for rows in memory.storage_policy.buffer_datasets) == 20
    assert len(run.plugin.bank) == 3

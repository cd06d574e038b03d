"""GraftingContinual in Naive's place, where Avalanche's own tests put a strategy to odd uses."""

import pytest
from avalanche.models import MultiHeadClassifier, SimpleMLP
from avalanche.models.dynamic_modules import DynamicModule
from head_models import accuracy
from tiny_streams import learner, vector_stream
from torch import nn

from cl_graft.errors import WrongArchitecture
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


def test_a_module_that_is_added_between_tasks_is_refused():
    run = learner(SimpleMLP(num_classes=2, input_size=12), vector_stream(labels=[0, 1]))
    run.strategy.train(run.train_stream[0])
    run.model.add_module("added", nn.Linear(10, 10))
    with pytest.raises(WrongArchitecture, match="got parameters since its first task, added"):
        run.strategy.train(run.train_stream[1])


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

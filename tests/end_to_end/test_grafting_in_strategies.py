"""Grafting inside Avalanche's ways: no labels, other plugins, construction, copies, checkpoints."""

import copy
import sys

import pytest
import tiny_streams
import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import (
    AGEMPlugin,
    EWCPlugin,
    GEMPlugin,
    LwFPlugin,
    MASPlugin,
    MIRPlugin,
    RWalkPlugin,
    SynapticIntelligencePlugin,
)
from tiny_streams import (
    TASKS,
    bits,
    learner,
    naive_strategy,
    quick,
    quiet_evaluator,
    same_entries,
    sgd,
    text_learner,
    vector_stream,
)
from torch import nn

from cl_graft import GraftingContinual, GraftingPlugin, load_bank, save_bank
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.strategies.stream_scores import StreamScores


def mlp():
    return tiny_streams.mlp(drop_rate=0.3)


def naive(model, benchmark):
    scores = StreamScores()
    strategy = naive_strategy(model, evaluator=quiet_evaluator(scores))
    torch.manual_seed(7)
    for experience in benchmark.streams["train"]:
        strategy.train(experience)
        strategy.eval(benchmark.streams["test"])
    return scores


@pytest.mark.parametrize("labels", [None, (0, 0, 0)])
def test_without_task_labels_it_is_naive_bit_for_bit_and_says_so_once(labels):
    expected_model, model = mlp(), mlp()
    expected = naive(expected_model, vector_stream(labels=labels))
    run = learner(model, vector_stream(labels=labels))
    torch.manual_seed(7)
    with pytest.warns(UserWarning, match="nothing is protected"):
        run.strategy.train(run.train_stream[0])
    run.strategy.eval(run.test_stream)
    for experience in list(run.train_stream)[1:]:
        run.strategy.train(experience)  # a second warning would be an error
        run.strategy.eval(run.test_stream)
    assert bits(model) == bits(expected_model)
    pairs = [(i, j) for i in range(3) for j in range(i + 1)]
    assert all(run.scores.logit_hash(*pair) == expected.logit_hash(*pair) for pair in pairs)
    assert run.plugin.bank is None


@pytest.mark.parametrize(
    "plugin",
    [
        *(EWCPlugin(1.0), MASPlugin(), SynapticIntelligencePlugin(1.0), RWalkPlugin(delta_t=1)),
        *(GEMPlugin(4, 0.5), AGEMPlugin(4, 4), MIRPlugin(8, 8, 8)),
        type("OwnSI", (SynapticIntelligencePlugin,), {})(si_lambda=1.0),
    ],
    ids=lambda plugin: type(plugin).__name__,
)
def test_a_plugin_that_cannot_act_on_a_region_is_refused_by_name(plugin):
    run = learner(mlp(), vector_stream(labels=[0, 1]), plugins=[plugin])
    with pytest.raises(ValueError, match=rf"^{type(plugin).__name__} cannot act on a region"):
        run.strategy.train(run.train_stream[0])


def test_positional_construction_works_with_avalanches_warning():
    from avalanche.training.templates.base import PositionalArgumentsDeprecatedWarning

    model = mlp()
    optimizer = sgd(model)
    with pytest.warns(PositionalArgumentsDeprecatedWarning):
        strategy = GraftingContinual(
            model, optimizer, nn.CrossEntropyLoss(), 8, 1, 32, evaluator=quiet_evaluator()
        )
    assert strategy.train_mb_size == 8
    assert strategy.eval_mb_size == 32
    assert strategy.grafting in strategy.plugins
    assert strategy.bank is None


def test_the_plugin_constructs_with_no_arguments_and_serves_naive():
    plugin, model, benchmark = GraftingPlugin(), mlp(), vector_stream(labels=[0, 1])
    plugin.settings = quick()
    naive_strategy(model, plugins=[plugin]).train(benchmark.streams["train"])
    assert len(plugin.bank) == 2


@pytest.fixture
def dill_finds_sgd(monkeypatch):
    """Undo what keeps dill from naming torch's optimisers: torch.optim deletes its own modules."""
    monkeypatch.setattr(torch.optim, "sgd", sys.modules["torch.optim.sgd"], raising=False)


def test_avalanches_own_checkpoint_resumes_a_stream(tiny_bert, tmp_path, dill_finds_sgd):
    from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint

    file = tmp_path / "checkpoint.pkl"
    run = text_learner(tiny_bert)
    run.strategy.train(run.train_stream[0])
    save_checkpoint(run.strategy, file)
    fresh = text_learner(tiny_bert)
    strategy, done = maybe_load_checkpoint(fresh.strategy, file)
    assert done == 1
    strategy.train(run.train_stream[1])
    run.strategy.train(run.train_stream[1])
    assert same_entries(strategy.bank.entries, run.plugin.bank.entries)


class KeepsTeachers(SupervisedPlugin, supports_distributed=True):
    """Copy the model in the middle of an experience, as distillation takes its teacher."""

    def __init__(self):
        super().__init__()
        self.teachers = []

    def after_training_epoch(self, strategy, **kwargs):
        answers = self.answers(strategy.model)
        self.teachers.append((copy.deepcopy(strategy.model), answers))

    @staticmethod
    def answers(model):
        model.eval()
        with torch.no_grad():
            answers = model(torch.ones(2, 12))
        model.train()
        return answers


@pytest.mark.parametrize("host", [False, True])
def test_a_model_copied_while_its_region_trains_keeps_its_answers(host):
    keeps = KeepsTeachers()
    lwf = LwFPlugin(alpha=1.0, temperature=2.0)
    run = learner(
        mlp(),
        vector_stream(labels=[0, 1, 2]),
        settings=quick(density=0.2),
        train_epochs=3,
        plugins=[keeps, lwf] if host else [keeps],
    )
    for experience in run.train_stream:
        run.strategy.train(experience)
    plain = [type(module) for module in mlp().modules()]
    different = {hash_tensors({"answers": answers}) for _, answers in keeps.teachers}
    assert len(different) == 9
    for teacher, answers in keeps.teachers:
        assert [type(module) for module in teacher.modules()] == plain
        assert torch.equal(keeps.answers(teacher), answers)
    if host:
        assert [type(module) for module in lwf.lwf.prev_model.modules()] == plain


def test_a_label_of_several_tasks_in_one_experience_is_refused():
    from avalanche.benchmarks import benchmark_from_datasets, with_task_labels

    one, other = vector_stream(labels=[0, 1]).streams["train"]
    data = one.dataset.concat(other.dataset)
    benchmark = with_task_labels(benchmark_from_datasets(train=[data], test=[data]))
    run = learner(mlp(), benchmark)
    with pytest.raises(ValueError, match="one task at a time"):
        run.strategy.train(run.train_stream[0])


def test_a_loop_goes_on_with_its_saved_bank_and_scores_to_the_same_bits(tiny_bert, tmp_path):
    whole = text_learner(tiny_bert, TASKS).learn()
    first = text_learner(tiny_bert, TASKS).learn(upto=2)
    save_bank(first.plugin.bank, tmp_path / "bank")
    first.scores.save(tmp_path / "scores.json")
    bank = load_bank(tmp_path / "bank")
    again = text_learner(tiny_bert, TASKS, grafting={"bank": bank})
    again.scores.load_(tmp_path / "scores.json")
    again.strategy.train(again.train_stream[len(bank)])
    again.strategy.eval(again.test_stream)
    assert same_entries(again.plugin.bank.entries, whole.plugin.bank.entries)
    assert again.scores.R(3) == whole.scores.R(3)
    assert again.scores.logit_hash(2, 0) == whole.scores.logit_hash(2, 0)

"""What a program gives a strategy in the place of something else is named in a sentence."""

import re
from functools import partial

import pytest
import torch
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin
from tiny_streams import learner, mlp, naive_strategy, quick, sgd, text_learner, vector_stream

import cl_graft as cg


@pytest.mark.parametrize("call", ["train", "eval"])
def test_a_class_in_the_place_of_a_plugin(call):
    strategy = naive_strategy(mlp(), plugins=[cg.GraftingPlugin])
    with pytest.raises(TypeError, match=r"holds the class GraftingPlugin; .*GraftingPlugin\(\)"):
        getattr(strategy, call)(vector_stream(labels=[0]).streams["train"])


def test_a_class_in_the_place_of_a_metric():
    evaluator = EvaluationPlugin(cg.StreamScores, loggers=[BaseLogger()])
    strategy = naive_strategy(mlp(), evaluator=evaluator)
    with pytest.raises(TypeError, match=r"holds the class StreamScores; .*StreamScores\(\)"):
        strategy.train(vector_stream(labels=[0]).train_stream)


def test_a_class_in_the_place_of_settings():
    with pytest.raises(TypeError, match="got the class GraftingSettings"):
        cg.GraftingPlugin(cg.GraftingSettings)
    model = mlp()
    with pytest.raises(TypeError, match="got the class GraftingPlugin"):
        cg.GraftingContinual(model=model, optimizer=sgd(model), grafting=cg.GraftingPlugin)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dev": []}, "give `dev`"),
        ({"task_labels": "experience"}, r"GraftingPlugin\(…, task_labels=task_labels\)"),
    ],
)
def test_what_belongs_to_a_plugin_beside_one(given, said):
    model, plugin = mlp(), cg.GraftingPlugin()
    with pytest.raises(ValueError, match=said):
        cg.GraftingContinual(model=model, optimizer=sgd(model), grafting=plugin, **given)


def test_two_plugins_in_one_strategy():
    run = learner(mlp(), vector_stream(labels=[0]), plugins=[cg.GraftingPlugin(quick())])
    with pytest.raises(ValueError, match="several plugins of the class GraftingPlugin"):
        run.strategy.train(run.train_stream[0])


def test_a_task_or_a_stream_in_the_place_of_experiences(tiny_bert):
    run = text_learner(tiny_bert)
    task = cg.load_task("scope", shots=8, max_test=8)
    for given in (task, [task]):
        with pytest.raises(AttributeError, match=r"'scope' is no experience: .*train_stream"):
            run.strategy.train(given)
    loaded = cg.load_model(str(tiny_bert), family="encoder")
    stream = cg.text_stream([task], loaded.tokenizer, family="encoder")
    with pytest.raises(AttributeError, match="a TextStream is no experience"):
        run.strategy.train(stream)
    assert not hasattr(task, "origin_stream")


def test_an_optimizer_of_another_model():
    run = learner(mlp(), vector_stream(labels=[0, 1]))
    run.strategy.optimizer = sgd(mlp())
    with pytest.warns(UserWarning, match="holds no parameter of the strategy's model"):
        run.strategy.train(run.train_stream[0])
    run.strategy.train(run.train_stream[1])  # a second warning would be an error


def test_a_rate_of_sgd_for_adam(caplog):
    made = partial(learner, mlp(), vector_stream(labels=[0]), settings=quick(density=0.5))
    adam = made(optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=0.3))
    adam.strategy.train(adam.train_stream[0])
    assert re.search(r"AdamW moves every weight by about .* usual", caplog.text)


def test_something_else_in_the_place_of_a_bank(tmp_path):
    with pytest.raises(cg.InputError, match="got None"):
        cg.save_bank(None, tmp_path / "bank")
    assert not (tmp_path / "bank").exists()

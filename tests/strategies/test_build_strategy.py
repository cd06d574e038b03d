"""A strategy that is built by its name trains without an experiment."""

import pytest
from slow_cases import slow
from small_runs import SMALL

from cl_graft.data import load_task
from cl_graft.errors import InputError
from cl_graft.lab.baselines.bounds import IndependentPlugin
from cl_graft.lab.baselines.merging import MergingPlugin
from cl_graft.models import load_model
from cl_graft.strategies import find_plugin, text_model
from cl_graft.strategies.benchmark import text_stream
from cl_graft.strategies.registry import build_strategy
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.fine_tuning_settings import FineTuning


@pytest.fixture
def inputs(still_bert):
    """Two tasks with schedules of their own, and defaults in all else."""
    loaded = load_model(str(still_bert))
    tasks = [load_task(name, shots=8, max_test=20) for name in SMALL["tasks"]]
    stream = text_stream(tasks, loaded.tokenizer, family="encoder", max_length=24)
    schedules = {0: FineTuning(steps=3, batch_size=4), 1: FineTuning(steps=5, batch_size=8)}
    return StrategyInputs(model=text_model(loaded, stream), stream=stream, fine_tuning=schedules)


@pytest.mark.parametrize("name", ["ewc", *slow("grafting")])
def test_each_task_is_trained_with_its_own_schedule_and_scored(inputs, name):
    strategy = build_strategy(name, inputs)
    benchmark = inputs.stream.benchmark
    for experience, schedule in zip(
        benchmark.train_stream, inputs.fine_tuning.values(), strict=True
    ):
        strategy.train(experience)
        assert strategy.clock.train_exp_iterations == schedule.steps
        assert strategy.train_mb_size == schedule.batch_size
    found = strategy.eval(benchmark.test_stream)
    assert {
        "Score/eval_phase/test_stream/Task000/Exp000",
        "AverageAccuracy/eval_phase/test_stream",
    } <= set(found)


def test_independent_fine_tuning_takes_as_many_times_the_steps_as_it_is_told(inputs):
    for times, rows in ((1.0, 12), (2.4, 28)):  # 3 and 7 steps of 4 rows
        strategy = build_strategy("independent", inputs, times_steps=times)
        strategy.train(inputs.stream.benchmark.train_stream[0])
        found = find_plugin(strategy, IndependentPlugin).passes[0]["dense"]
        assert found.forward_backward == rows


def test_a_lora_takes_as_many_times_the_steps_as_it_is_told(inputs):
    strategy = build_strategy("lora", inputs, times_steps=2.4)
    for experience, steps in zip(inputs.stream.benchmark.train_stream, (7, 12), strict=True):
        strategy.train(experience)
        assert strategy.clock.train_exp_iterations == steps


def test_unknown_names_and_settings_are_refused(inputs):
    with pytest.raises(InputError, match=r"unknown strategy 'ewk': did you mean 'ewc'"):
        build_strategy("ewk", inputs)
    with pytest.raises(InputError, match=r"ewc: unknown setting 'strength'"):
        build_strategy("ewc", inputs, strength=1.0)
    with pytest.raises(InputError, match=r"a LoRA of rank 1,000 .* more than 32"):
        build_strategy("lora", inputs, rank=1_000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"family": "enc"}, "unknown family 'enc'"),
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"tasks": "scope"}, "tasks must be a list of TextTask"),
        ({"tasks": ["scope"]}, "tasks must be a list of TextTask"),
        ({}, "tokenizer must be one of transformers, such as .* got 'minilm'"),
    ],
)
def test_a_stream_of_other_arguments_is_answered_in_a_sentence(given, message):
    arguments = {"tasks": [load_task("scope", shots=2)], "family": "encoder", **given}
    with pytest.raises(InputError, match=message):
        text_stream(arguments.pop("tasks"), "minilm", **arguments)


def test_values_that_are_merged_are_those_of_whole_dense_runs(inputs):
    plugin = find_plugin(build_strategy("merging_by_average", inputs), MergingPlugin)
    for label, schedule in inputs.fine_tuning.items():
        assert plugin._settings[label].fine_tuning == schedule
        assert inputs.grafting_settings[label].fine_tuning.steps == 1

"""The time of strategies is what was measured on each task, times what each strategy does."""

from __future__ import annotations

import pytest
from configs import config_with

from cl_graft.lab.experiments import time_estimate
from cl_graft.lab.experiments.time_estimate import TaskTimes, add_up_times, estimate_time
from cl_graft.training.fine_tuning_settings import FineTuning


def times(task: str) -> TaskTimes:
    schedule = FineTuning(steps=10, batch_size=8, evaluations=2)
    measured = {"dense_step": 3.0, "located_step": 2.5, "region_step": 2.0, "gradient": 0.2}
    return TaskTimes(task, schedule, **measured, answer=0.5, train=100, dev=4, test=6)


def estimate(*strategies: str, **settings):
    config = config_with({"tasks": ["a", "b"], "strategies": list(strategies), **settings})
    return add_up_times(config, [times("a"), times("b")])


def test_each_strategy_takes_its_own_steps_and_answers_the_tasks_so_far():
    found = estimate("naive", "cumulative", "lora").strategies
    looks, answers = 2 * (2 * 4 * 0.5), (1 + 2) * 6 * 0.5
    assert found["naive"] == pytest.approx(2 * 30 + looks + answers)
    assert found["cumulative"] == pytest.approx((1 + 2) * 30 + looks + answers)
    assert found["lora"] == pytest.approx(2 * 20 + looks + answers)


def test_a_dense_run_is_counted_once_for_all_that_share_it():
    asked = {"localizer": "movement"}
    found = estimate("independent", "grafting", **asked).strategies
    looks, answers = 2 * (2 * 4 * 0.5), (1 + 2) * 6 * 0.5
    assert found["independent"] == pytest.approx(2 * 25 + looks + answers)
    assert found["grafting"] == pytest.approx(2 * 20 + looks + answers)
    alone = estimate("grafting", **asked).strategies
    assert alone["grafting"] == pytest.approx(2 * (25 + 20) + 2 * looks + answers)


def test_gradients_that_a_localizer_looks_at_are_counted_by_their_rows():
    asked = {"localizer": "base_gradient", "mask_steps": 4, "mask_batch": 16}
    found = estimate("grafting", **asked).strategies["grafting"]
    looks, answers = 2 * (2 * 4 * 0.5), (1 + 2) * 6 * 0.5
    assert found == pytest.approx(2 * (4 * 16 * 0.2 + 20) + looks + answers)


def test_a_region_of_the_upper_layers_is_measured_in_these_alone(tiny_bert, monkeypatch):
    touched: list[int] = []

    def train(task, *given, **options):
        touched.append(sum(p.numel() for p in task.parameters.values()))

    for name in ("fine_tune_task", "train_region"):
        monkeypatch.setattr(time_estimate, name, train)
    own = {"tasks": ["topic"], "strategies": ["grafting"], "model": str(tiny_bert), "shots": 4}
    own |= {"max_length": 16, "max_test": 8}
    estimate_time(config_with({**own, "layers": 1}))
    whole, *upper = dict.fromkeys(touched)
    assert len(upper) == 1
    assert upper[0] < whole
    touched.clear()
    estimate_time(config_with(own))
    assert set(touched) == {whole}


def test_all_seeds_and_orders_are_runs_and_models_that_can_answer_early_are_asked_early():
    assert estimate("naive", seeds=[0, 1, 2], orders="all").runs == 6
    writer = estimate("naive", family="causal_lm").strategies["naive"]
    looks = 2 * (2 * 4 * 0.5)
    assert writer == pytest.approx(2 * 30 + looks + (1 + 2) * 2 * 6 * 0.5)
    once, never = (
        estimate("naive", family="causal_lm", evaluate_ahead=when).strategies["naive"]
        for when in ("once", "never")
    )
    assert once == pytest.approx(2 * 30 + looks + (2 + 1 + 2) * 6 * 0.5)
    assert never == pytest.approx(2 * 30 + looks + (1 + 2) * 6 * 0.5)
    found = estimate("naive", seeds=[0, 1])
    assert found.total == 2 * found.strategies["naive"]

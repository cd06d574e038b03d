"""A region trains by the optimiser of the config, at its rate, in runs and in `localize`."""

import math

import pytest
import torch
from configs import changed
from slow_cases import slow

from cl_graft.banks.verify import verify
from cl_graft.experiments.run import run
from cl_graft.strategies.loop.budgets import TaskSchedules
from cl_graft.strategies.methods.grafting.grafting import Grafting

SIZE = 171
"""Coordinates of a hundredth of the tiny model."""


@pytest.mark.parametrize(
    ("family", "given", "optimizer"),
    [
        ("encoder", None, "sgd"),
        ("masked_lm", None, "sgd"),
        ("seq2seq_lm", None, "sgd"),
        ("causal_lm", None, "adamw"),
        ("causal_lm", "sgd", "sgd"),
        ("encoder", "adamw", "adamw"),
    ],
)
def test_the_family_says_the_optimizer_where_none_is_given(tiny_config, family, given, optimizer):
    config = tiny_config.with_values({"model.family": family, "grafting.optimizer": given})
    assert config.region_optimizer == optimizer
    schedule = config.region_schedule(config.fine_tuning, coordinates=10_000)
    assert (schedule.optimizer, schedule.lr) == (optimizer, 0.3 if optimizer == "sgd" else 0.005)


@pytest.mark.parametrize(
    ("settings", "kind", "rate"),
    [
        ({"grafting.optimizer": "adamw"}, torch.optim.AdamW, 0.5 / math.sqrt(SIZE)),
        *slow(
            ({}, torch.optim.SGD, 0.3),
            ({"grafting.optimizer": "adamw", "grafting.lr": 0.01}, torch.optim.AdamW, 0.01),
        ),
    ],
)
def test_a_run_trains_regions_by_the_optimizer_of_the_config(
    tiny_config, tmp_path, monkeypatch, settings, kind, rate
):
    built = []
    build = Grafting.build

    def watch(self, inputs):
        strategy = build(self, inputs)
        schedules = next(one for one in strategy.plugins if isinstance(one, TaskSchedules))
        built.append((type(strategy.optimizer), {one.lr for one in schedules.schedules.values()}))
        return strategy

    monkeypatch.setattr(Grafting, "build", watch)
    config = changed(tiny_config, {"tasks": ["sentiment", "topic"], **settings})
    result = run(config, strategy="grafting", seed=0, out=tmp_path)
    assert built == [(kind, {rate})]
    assert result.forgetting == 0.0
    assert verify(tmp_path / "grafting" / "seed0").ok

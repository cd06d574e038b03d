"""A region trains by the optimiser of the config, at its rate, in runs and in `localize`."""

import math

import pytest
import torch
from avalanche.core import SupervisedPlugin
from configs import changed
from slow_cases import slow

from cl_graft import load_bank
from cl_graft.banks.verify import verify
from cl_graft.experiments.run import run
from cl_graft.strategies.methods.grafting.grafting import Grafting


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


class FirstRates(SupervisedPlugin):
    """Note the optimiser, and the rates of region and head in the first step of each task."""

    def __init__(self):
        super().__init__()
        self.found = []

    def before_update(self, strategy, **kwargs):
        if strategy.clock.train_exp_iterations == 0:
            kind = type(strategy.optimizer)
            self.found.append((kind, *(group["lr"] for group in strategy.optimizer.param_groups)))


def by_size(size):
    return 0.5 / math.sqrt(size)


@pytest.mark.parametrize(
    ("settings", "kind", "rate"),
    [
        ({"optimizer": "adamw", "density": "auto"}, torch.optim.AdamW, by_size),
        *slow(
            ({}, torch.optim.SGD, lambda _: 0.3),
            ({"optimizer": "adamw"}, torch.optim.AdamW, by_size),
            ({"optimizer": "adamw", "lr": 0.01}, torch.optim.AdamW, lambda _: 0.01),
            ({"optimizer": "adamw", "lr_decay": False}, torch.optim.AdamW, by_size),
            (
                {"optimizer": "adamw", "density": 1.0, "bank_bytes": 60_000},
                torch.optim.AdamW,
                by_size,
            ),
        ),
    ],
)
def test_a_run_trains_regions_by_the_optimizer_of_the_config(
    tiny_config, tmp_path, monkeypatch, settings, kind, rate
):
    rates, build = FirstRates(), Grafting.build

    def watch(self, inputs):
        strategy = build(self, inputs)
        strategy.plugins.append(rates)
        return strategy

    monkeypatch.setattr(Grafting, "build", watch)
    own = {f"grafting.{name}": value for name, value in settings.items()}
    config = changed(
        tiny_config, {"tasks": ["sentiment", "topic"], "grafting.head_lr": 0.02, **own}
    )
    result = run(config, strategy="grafting", seed=0, out=tmp_path)
    folder = tmp_path / "grafting" / "seed0"
    sizes = [entry.size for entry in load_bank(folder / "bank").entries]
    assert rates.found == [(kind, rate(size), 0.02) for size in sizes]
    assert result.forgetting == 0.0
    assert verify(folder).ok

"""A region trains by the optimiser of the config, at its rate, in runs and in `localize`."""

import math
from types import SimpleNamespace

import pytest
import torch
from avalanche.core import SupervisedPlugin
from configs import changed
from slow_cases import slow

from cl_graft import load_bank, load_model
from cl_graft.banks.verify import verify
from cl_graft.lab.experiments.run import run
from cl_graft.models.graftable import weight_scale
from cl_graft.strategies.grafting_methods import Grafting
from cl_graft.strategies.loop.steps_and_rates import RegionRate
from cl_graft.training.rate_schedule import WARM_UP, rate_share


@pytest.mark.parametrize("family", ["encoder", "masked_lm", "seq2seq_lm", "causal_lm"])
def test_regions_of_every_family_train_by_adamw(tiny_config, family):
    config = tiny_config.with_values({"model.family": family})
    schedule = config.region_schedule(config.fine_tuning, coordinates=10_000, scale=0.05)
    assert (schedule.optimizer, schedule.lr) == ("adamw", 0.004)
    config = config.with_values({"grafting.localizer": "random"})
    schedule = config.region_schedule(config.fine_tuning, coordinates=10_000, scale=0.05)
    assert schedule.lr == pytest.approx(0.02)
    config = config.with_values({"grafting.optimizer": "sgd"})
    schedule = config.region_schedule(config.fine_tuning, coordinates=10_000, scale=0.05)
    assert (schedule.optimizer, schedule.lr) == ("sgd", 0.3)


class Rates(SupervisedPlugin):
    """Note the optimiser, and the rates of region and head in every step."""

    def __init__(self):
        super().__init__()
        self.found = []

    def before_update(self, strategy, **kwargs):
        kind, step = type(strategy.optimizer), strategy.clock.train_exp_iterations
        rates = (group["lr"] for group in strategy.optimizer.param_groups)
        self.found.append((kind, step, *rates))


def by_size(size, scale):
    return 8 * scale / math.sqrt(size)


@pytest.mark.parametrize(
    ("settings", "kind", "rate"),
    [
        ({}, torch.optim.AdamW, by_size),
        ({"localizer": "random"}, torch.optim.AdamW, lambda *sizes: 5 * by_size(*sizes)),
        *slow(
            ({"optimizer": "sgd"}, torch.optim.SGD, lambda *_: 0.3),
            ({"lr": 0.01}, torch.optim.AdamW, lambda *_: 0.01),
            ({"lr_decay": "constant"}, torch.optim.AdamW, by_size),
        ),
    ],
)
def test_a_run_trains_regions_by_the_optimizer_of_the_config(
    tiny_config, tmp_path, monkeypatch, settings, kind, rate, caplog
):
    rates, build = Rates(), Grafting.build

    def watch(self, inputs):
        strategy = build(self, inputs)
        strategy.plugins.append(rates)
        return strategy

    monkeypatch.setattr(Grafting, "build", watch)
    own = {f"grafting.{name}": value for name, value in settings.items()}
    config = changed(tiny_config, {"tasks": ["scope", "topic"], "grafting.head_lr": 0.02, **own})
    result = run(config, strategy="grafting", seed=0, out=tmp_path)
    assert "is far for" not in caplog.text
    folder = tmp_path / "grafting" / "seed0"
    bank = load_bank(folder / "bank")
    sizes = [entry.size for entry in bank.entries]
    scale = weight_scale(load_model(config.model.name).model)
    steps, decay = config.fine_tuning.steps, config.grafting.lr_decay or "linear"
    warm_up = WARM_UP if kind is torch.optim.AdamW else 0.0
    left = [rate_share(step, steps, decay=decay, warm_up=warm_up) for step in range(steps)]
    assert rates.found == [
        (kind, step, pytest.approx(rate(size, scale) * part), pytest.approx(0.02 * part))
        for size in sizes
        for step, part in enumerate(left)
    ]
    assert result.forgetting == 0.0
    assert verify(folder).ok


@pytest.mark.parametrize(("region", "of_head"), [(1_000_000, 0.0003), (0, 0.03), (16, 0.03)])
def test_a_head_beside_a_small_region_does_not_get_its_large_rate(region, of_head):
    groups = [[torch.zeros(region)] if region else [], [torch.zeros(100)]]
    optimizer = SimpleNamespace(param_groups=[{"params": group} for group in groups])
    RegionRate(0.0375).before_training_epoch(SimpleNamespace(optimizer=optimizer, plugins=[]))
    assert optimizer.param_groups[0]["lr"] == by_size(max(1, region), 0.0375)
    assert optimizer.param_groups[1]["lr"] == of_head


def test_a_head_beside_a_random_region_has_the_rate_of_its_own_share():
    groups = [{"params": [torch.zeros(40_000)]}, {"params": [torch.zeros(10_000)]}]
    strategy = SimpleNamespace(optimizer=SimpleNamespace(param_groups=groups), plugins=[])
    RegionRate(0.01875, localizer="random").before_training_epoch(strategy)
    assert [group["lr"] for group in groups] == pytest.approx([0.00375, 0.0015])

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
from cl_graft.models import graftable_parameters
from cl_graft.strategies.grafting_methods import Grafting
from cl_graft.strategies.loop.steps_and_rates import RegionRate
from cl_graft.training.rate_schedule import WARM_UP, rate_share


@pytest.mark.parametrize("family", ["encoder", "masked_lm", "seq2seq_lm", "causal_lm"])
def test_regions_of_every_family_train_by_adamw(tiny_config, family):
    config, size = tiny_config.with_values({"model.family": family}), {"coordinates": 10_000}
    base = [torch.full((100, 100), 0.1), torch.full((40_000,), 5.0)]
    schedule = config.region_schedule(config.fine_tuning, **size, base=base)
    assert (schedule.optimizer, schedule.lr) == ("adamw", 0.00025)
    config = config.with_values({"grafting.optimizer": "sgd"})
    schedule = config.region_schedule(config.fine_tuning, **size, base=base)
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


def by_size(size, base):
    matrices = (w for w in graftable_parameters(base).values() if w.dim() > 1)
    return 0.0025 * math.sqrt(sum(w.detach().square().sum().item() for w in matrices) / size)


@pytest.mark.parametrize(
    ("settings", "kind", "rate"),
    [
        ({}, torch.optim.AdamW, by_size),
        *slow(
            ({"optimizer": "sgd"}, torch.optim.SGD, lambda *_: 0.3),
            ({"density": "auto"}, torch.optim.AdamW, by_size),
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
    base = load_model(config.model.name).model
    sizes = [entry.size for entry in load_bank(folder / "bank").entries]
    steps, decay = config.fine_tuning.steps, config.grafting.lr_decay or "linear"
    warm_up = WARM_UP if kind is torch.optim.AdamW else 0.0
    left = [rate_share(step, steps, decay=decay, warm_up=warm_up) for step in range(steps)]
    assert rates.found == [
        (kind, step, pytest.approx(rate(size, base) * part, 0.005), pytest.approx(0.02 * part))
        for size in sizes
        for step, part in enumerate(left)
    ]
    assert result.forgetting == 0.0
    assert verify(folder).ok


@pytest.mark.parametrize(("region", "of_head"), [(10_000, 0.005), (0, 0.05), (16, 0.05)])
def test_a_head_beside_a_small_region_does_not_get_its_large_rate(region, of_head):
    groups = [[torch.zeros(region)] if region else [], [torch.zeros(100)]]
    optimizer = SimpleNamespace(param_groups=[{"params": group} for group in groups])
    base = [torch.full((20, 20), 10.0)]  # of norm 200
    RegionRate(base).before_training_epoch(SimpleNamespace(optimizer=optimizer, plugins=[]))
    assert optimizer.param_groups[0]["lr"] == 0.5 / math.sqrt(max(1, region))
    assert optimizer.param_groups[1]["lr"] == of_head

"""A method from an installed package runs in a comparison beside those of this package."""

import sys

import pytest
from configs import config_with
from own_registries import install_package
from small_runs import SMALL

from cl_graft.errors import InputError
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.strategies.registry import STRATEGIES, list_available

METHOD = """
from avalanche.core import SupervisedPlugin
from cl_graft.strategies.method import setting
from cl_graft.strategies.registry import register_strategy


class Shrink(SupervisedPlugin, supports_distributed=False):
    def __init__(self, strength):
        super().__init__()
        self.strength = strength

    def before_backward(self, strategy, **kwargs):
        weights = strategy.model.parameters()
        strategy.loss = strategy.loss + self.strength * sum(w.square().sum() for w in weights)


@register_strategy("shrink", family="penalty", source="nobody", unsupported={"class": "a test"})
class ShrinkingWeights:
    strength: float = setting(0.1, "Weight of the penalty.", min_value=0, grid=(0.0, 0.1))

    def build(self, inputs):
        return inputs.naive(Shrink(self.strength))

    @staticmethod
    def storage_bytes(strategy):
        return 1000 * strategy.clock.train_exp_counter
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package with two entry points: a method, and a module that cannot be imported."""
    folder = tmp_path / "site"
    points = {"shrink": "shrinking", "stretch": "shrinking.nowhere"}
    install_package(folder, "shrinking", METHOD, group="cl_graft.strategies", **points)
    monkeypatch.syspath_prepend(folder)
    # As in a new process, in which nothing was looked up yet.
    monkeypatch.setattr(STRATEGIES, "_entries", dict(STRATEGIES))
    monkeypatch.setattr(STRATEGIES, "failures", [])
    monkeypatch.setattr(STRATEGIES, "_steps", [STRATEGIES._load_entry_points])
    yield
    sys.modules.pop("shrinking", None)


def test_a_method_of_another_package_runs_in_a_comparison(installed, still_bert, tmp_path):
    own = {"shrink": {"strength": 0.5}}
    asked = {"strategies": ["naive", "shrink"], "strategy_settings": own, "seeds": [0]}
    config = config_with(SMALL | asked | {"model": str(still_bert)})
    found = compare(config, out=tmp_path / "out")
    (naive,), (shrunk,) = (
        [run for run in found.runs if run.strategy == name] for name in ("naive", "shrink")
    )
    assert shrunk.settings == {"strength": 0.5}
    assert shrunk.logit_hashes != naive.logit_hashes
    assert all(shrunk.bytes[task] == naive.bytes[task] + 1000 for task in naive.bytes)


def test_it_is_listed_and_checked_like_any_other(installed):
    assert "shrink" in list_available()
    assert "shrink" not in list_available(scenario="class")
    with pytest.raises(InputError, match=r"shrink\.strength must be at least 0, got -1"):
        config_with({"tasks": ["scope"], "strategy_settings": {"shrink": {"strength": -1}}})


def test_an_entry_point_that_cannot_be_loaded_is_named(installed):
    with pytest.raises(InputError, match=r"unknown strategy 'stretch'.*shrinking\.nowhere"):
        config_with({"tasks": ["scope"], "strategies": ["stretch"]})

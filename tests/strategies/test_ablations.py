"""Ablations of grafting: every localizer, and regions that are not trained again."""

import pytest
import torch
from configs import config_with

from cl_graft.errors import InputError
from cl_graft.localization import LOCALIZERS
from cl_graft.storage import load_bank
from cl_graft.strategies.registry import STRATEGIES, list_available

PLAIN = "grafting_without_retraining"


def test_there_is_an_ablation_for_every_localizer():
    config = config_with({"tasks": ["scope"]})
    for name in LOCALIZERS:
        own = config.with_values(STRATEGIES[f"grafting_{name}"].fixed_config)
        assert own.grafting.localizer == name
    assert list_available(ablations=True) == [*(f"grafting_{name}" for name in LOCALIZERS), PLAIN]


def test_ablations_are_named_together_and_no_part_of_all():
    names = config_with({"tasks": ["scope"], "strategies": "naive,ablations"}).comparison.strategies
    assert names == ["naive", *list_available(ablations=True)]
    every = config_with({"tasks": ["scope"], "strategies": "all"}).comparison.strategies
    assert not set(every) & set(list_available(ablations=True))
    both = config_with({"tasks": ["scope"], "strategies": "naive,all"}).comparison.strategies
    assert len(both) == len(set(both)) == len(every)


@pytest.mark.slow
@pytest.mark.parametrize("localizer", ["random", "movement"])
def test_an_ablation_is_grafting_with_its_localizer(small_runs, localizer):
    own = small_runs(f"grafting_{localizer}")
    same = small_runs("grafting", localizer=localizer)
    assert own.logit_hashes == same.logit_hashes
    assert own.coordinates == same.coordinates


def test_without_retraining_a_region_keeps_the_values_of_the_independent_run(small_runs):
    isolated = {"mode": "isolated", "keep_standalone": True}
    kept = load_bank(small_runs.folder(PLAIN, **isolated) / "bank")
    trained = load_bank(small_runs.folder("grafting", **isolated) / "bank")
    for own, other in zip(kept.entries, trained.entries, strict=True):
        assert own.owned.region == other.owned.region
        assert torch.equal(own.owned.values, other.standalone.values)
        assert not torch.equal(other.owned.values, other.standalone.values)


def test_without_retraining_no_row_is_differentiated_for_the_region(small_runs):
    result = small_runs(PLAIN)
    for phases in result.passes.values():
        assert phases["region"]["forward_backward"] == 0
    assert result.forgetting == 0.0


def test_without_retraining_the_head_is_fitted_to_the_region(small_runs):
    tuned = load_bank(small_runs.folder(PLAIN, head_refit_rows=0) / "bank")
    fitted = load_bank(small_runs.folder(PLAIN) / "bank")
    for own, other in zip(fitted.entries, tuned.entries, strict=True):
        assert own.owned.same_bits(other.owned)
        assert not torch.equal(own.head["weight"], other.head["weight"])


@pytest.mark.slow
def test_a_head_beside_a_region_has_its_own_rate(small_runs):
    tuned = load_bank(small_runs.folder(PLAIN, head_refit_rows=0) / "bank")
    slow = load_bank(small_runs.folder("grafting", dense_share=1.0, head_lr=1e-9) / "bank")
    fast = load_bank(small_runs.folder("grafting", dense_share=1.0) / "bank")
    for one, other, third in zip(tuned.entries, slow.entries, fast.entries, strict=True):
        assert torch.allclose(one.head["weight"], other.head["weight"], atol=1e-6)
        assert not torch.allclose(one.head["weight"], third.head["weight"], atol=1e-6)
        assert not one.owned.same_bits(other.owned)


def test_there_are_no_values_to_keep_without_an_independent_run():
    with pytest.raises(InputError, match=r"retrain=False needs densely fine-tuned weights"):
        config_with({"tasks": ["scope"], "localizer": "random", "retrain": False})

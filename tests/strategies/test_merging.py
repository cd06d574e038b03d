"""Merging as a strategy: what is merged, who answers, and what it costs."""

import pytest
import torch
from slow_cases import slow_but

from cl_graft.errors import InputError
from cl_graft.grafts.graft import extract, find_parameters
from cl_graft.grafts.merge_rules import merge_grafts, standalone_grafts
from cl_graft.lab.baselines.merging import MergingPlugin
from cl_graft.storage import load_bank
from cl_graft.strategies import find_plugin
from cl_graft.strategies.registry import STRATEGIES
from cl_graft.strategies.task_heads import unwrap_model

MERGED = [name for name, row in STRATEGIES.items() if row.family == "merging"]
STANDALONE = {"keep_standalone": True, "avoid_owned": False}


def test_what_is_merged_are_the_standalone_grafts_of_a_bank(kept_strategy, small_runs):
    plugin = find_plugin(kept_strategy("merging_by_average"), MergingPlugin)
    bank = load_bank(small_runs.folder("grafting", **STANDALONE) / "bank")
    for entry, standalone in zip(plugin.bank.entries, standalone_grafts(bank), strict=True):
        assert entry.owned.same_bits(standalone)


def test_a_bank_is_merged_as_the_strategy_merges(kept_strategy, small_runs):
    strategy = kept_strategy("merging_by_ties", keep=0.5, coefficient=0.7)
    bank = load_bank(small_runs.folder("grafting", **STANDALONE) / "bank")
    base = find_parameters(unwrap_model(strategy.model), bank.layout)
    found = merge_grafts(standalone_grafts(bank), base, rule="ties", coefficient=0.7, keep=0.5)
    assert found.same_bits(find_plugin(strategy, MergingPlugin).merged)


def test_a_bank_without_standalone_grafts_cannot_be_merged(small_runs):
    bank = load_bank(small_runs.folder("grafting") / "bank")
    with pytest.raises(InputError, match="no standalone graft of scope, topic"):
        standalone_grafts(bank)


def test_every_task_is_answered_by_one_encoder_and_the_base_comes_back(kept_strategy):
    strategy = kept_strategy("merging_by_localize_and_stitch")
    plugin, model = find_plugin(strategy, MergingPlugin), unwrap_model(strategy.model)
    before = extract(model, plugin.merged.region)
    plugin.before_eval_exp(strategy)
    assert extract(model, plugin.merged.region).same_bits(plugin.merged)
    plugin.after_eval_exp(strategy)
    assert extract(model, plugin.merged.region).same_bits(before)
    assert not before.same_bits(plugin.merged)


@pytest.mark.parametrize("name", slow_but(("merging_by_ties",), MERGED))
def test_a_task_adds_its_head_and_its_graft(small_runs, name):
    heads = small_runs("naive").bytes
    bank = load_bank(small_runs.folder("grafting", **STANDALONE) / "bank")
    for entry, size in zip(bank.entries, small_runs(name).bytes.values(), strict=True):
        extra = size - heads[entry.task]
        assert 4 * len(entry.standalone) < extra < 6 * len(entry.standalone)


def test_dropping_is_random_by_the_seed_of_the_run(kept_strategy):
    grafts = [
        find_plugin(kept_strategy("merging_by_dare", drop=drop), MergingPlugin).merged
        for drop in (0.5, 0.4)
    ]
    assert not torch.equal(grafts[0].values, grafts[1].values)

"""The phases before region training: dense run or warm head, localization, budget, cache."""

from dataclasses import replace

import pytest
import torch
from localization.planted import FEW
from slow_cases import slow_but
from small_tasks import MemoryCache, make_task, settings

from cl_graft.errors import InputError
from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization import LOCALIZERS
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.parameter_subsets import biases
from cl_graft.localization.region_search import find_region
from cl_graft.runtime.run_context import RunContext
from cl_graft.training.learnable_task import Passes, total_passes

# The small task has no LayerNorm and no blocks.
FITTING = sorted(set(LOCALIZERS) - {"layer_norm_only", "columns", "random_columns"})
WITHOUT_DENSE_RUN = [name for name in FITTING if not LOCALIZERS[name].needs_dense_run]


def test_the_outcome_is_a_function_of_content_settings_and_seed():
    first = find_region(make_task(), settings())
    torch.manual_seed(99)
    second = find_region(make_task(), settings())
    other = find_region(make_task(), settings(seed=1))
    assert first.region == second.region
    assert all(torch.equal(first.dense.tuned[n], second.dense.tuned[n]) for n in first.dense.tuned)
    assert not all(
        torch.equal(first.dense.tuned[n], other.dense.tuned[n]) for n in first.dense.tuned
    )


@pytest.mark.parametrize(
    ("localizer", "phases"),
    [("learned_mask", ["dense", "ranking"]), ("base_gradient", ["ranking"])],
)
def test_the_cache_answers_with_the_same_bits(localizer, phases):
    cache, chosen = MemoryCache(), settings(localizer=localizer)
    computed = find_region(make_task(), chosen, context=RunContext(cache))
    assert cache.hits == []
    answered = find_region(make_task(), chosen, context=RunContext(cache))
    assert cache.hits == phases
    assert computed.region == answered.region
    assert computed.passes == answered.passes
    head = answered.dense.head
    assert all(torch.equal(value, head[name]) for name, value in computed.dense.head.items())


def test_another_density_shares_the_dense_run_but_not_the_ranking():
    cache = MemoryCache()
    task = make_task()
    find_region(task, settings(), context=RunContext(cache))
    find_region(task, settings(density=0.1), context=RunContext(cache))
    assert cache.hits == ["dense"]


@pytest.mark.parametrize("candidates", [20, 2])
def test_later_tasks_keep_their_whole_budget_and_pass_over_what_is_owned(candidates):
    task, chosen = make_task(), settings(mask_candidates=candidates)
    first = find_region(task, chosen)
    second = find_region(task, chosen, owned=first.region)
    without = find_region(task, replace(chosen, avoid_owned=False), owned=first.region)
    assert len(second.region) == len(first.region) == round(0.05 * first.region.layout.total)
    assert len(second.region & first.region) == 0
    assert without.region == first.region


@pytest.mark.parametrize("name", slow_but(FEW, FITTING))
def test_only_a_localizer_that_looks_at_tuned_weights_has_a_dense_run(name):
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    seen = []
    found = find_region(
        task,
        settings(localizer=name),
        context=RunContext(progress=lambda phase, step, steps: seen.append(phase)),
    )
    has_none = name in WITHOUT_DENSE_RUN
    phases = set(seen) | set(found.seconds) | set(found.passes)
    assert phases == ({"localize"} if has_none else {"dense", "localize"})
    assert (found.dense.tuned == {}) == (found.dense.dev is None) == has_none
    assert len(found.region) == round(0.05 * found.region.layout.total)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("name", slow_but(FEW, WITHOUT_DENSE_RUN))
def test_without_a_dense_run_the_head_keeps_its_first_values(name):
    task = make_task()
    head = find_region(task, settings(localizer=name)).dense.head
    assert set(head) == set(task.head)
    assert all(torch.equal(head[name], parameter) for name, parameter in task.head.items())


def test_without_a_dense_run_its_settings_do_not_decide_what_is_cached():
    cache, task = MemoryCache(), make_task()
    for changes in ({}, {"fine_tuning": GraftingSettings().fine_tuning}):
        chosen = settings(localizer="base_gradient", **changes)
        find_region(task, chosen, context=RunContext(cache))
        assert cache.hits == (["ranking"] if changes else [])


@pytest.mark.parametrize("name", WITHOUT_DENSE_RUN)
@pytest.mark.parametrize("asked", [{"retrain": False}, {"keep_standalone": True}])
def test_what_needs_tuned_weights_is_refused_without_a_dense_run(name, asked):
    with pytest.raises(InputError, match=f"{next(iter(asked))}.* needs .*{name!r}"):
        settings(localizer=name, **asked)


@pytest.mark.parametrize("name", slow_but(FEW, FITTING))
def test_passes_are_the_rows_that_went_through_the_model(name):
    task = make_task()
    rows, answered = [], []
    forward = task.forward

    def counting(inputs):
        (rows if torch.is_grad_enabled() else answered).append(len(inputs))
        return forward(inputs)

    task = replace(task, forward=counting)
    found = find_region(task, settings(localizer=name))
    assert total_passes(found.passes.values()) == Passes(sum(rows), sum(answered))


def test_more_candidates_than_coordinates_are_all_of_them():
    task = make_task()
    dense = find_region(task, settings())
    everything = find_region(task, settings(mask_candidates=1000))
    assert dense.region == everything.region


def test_candidates_have_rankings_of_their_own_in_the_cache():
    cache = MemoryCache()
    task = make_task()
    for candidates in (None, 3, 4):
        chosen = settings(mask_candidates=candidates)
        find_region(task, chosen, context=RunContext(cache))
    assert cache.hits == ["dense", "dense"]


def test_a_rule_gives_a_task_no_more_than_is_left_of_its_kind():
    task = make_task()
    chosen = settings(localizer="bias_only")
    first = find_region(task, chosen).region
    second = find_region(task, chosen, owned=first).region
    assert len(first) == round(0.05 * first.layout.total)
    allowed = Region.full(Layout.of(biases(task.model, task.parameters)))
    assert first | second == allowed.within(first.layout)
    assert len(first & second) == 0
    third = find_region(task, chosen, owned=first | second)
    assert len(third.region) == 0


def test_a_rule_that_fits_nothing_is_an_error_of_the_settings():
    task = make_task()
    with pytest.raises(InputError, match="no normalisation layers among"):
        find_region(task, settings(localizer="layer_norm_only"))


def test_the_cache_answers_for_a_rule_whose_ranking_is_shorter_than_the_budget_and_what_is_owned():
    task, cache = make_task(), MemoryCache()
    chosen = settings(localizer="bias_only")
    first = find_region(task, chosen, context=RunContext(cache)).region
    cache.hits.clear()
    again = find_region(task, chosen, context=RunContext(cache)).region
    assert cache.hits == ["ranking"]
    assert again == first

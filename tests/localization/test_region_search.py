"""The phases before region training: dense run or warm head, localization, budget, cache."""

from dataclasses import replace

import pytest
import torch
from small_tasks import MemoryCache, make_task, nothing, settings

from cl_graft.errors import InputError
from cl_graft.grafts.graft import snapshot
from cl_graft.localization import LOCALIZERS
from cl_graft.localization.region_search import locate_task
from cl_graft.localization.rules import biases
from cl_graft.localization.settings import GraftingSettings
from cl_graft.training.passes import Passes, total_passes

# The small task has no LayerNorm.
FITTING = sorted(set(LOCALIZERS) - {"layer_norm_only"})
WITHOUT_DENSE_RUN = [name for name in FITTING if not LOCALIZERS[name].needs_tuned]


def test_the_dense_run_and_localization_leave_the_model_at_its_base():
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    locate_task(task, settings(), owned=nothing(task))
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_the_outcome_is_a_function_of_content_settings_and_seed():
    first = locate_task(make_task(), settings(), owned=nothing(make_task()))
    torch.manual_seed(99)
    second = locate_task(make_task(), settings(), owned=nothing(make_task()))
    other = locate_task(make_task(), settings(seed=1), owned=nothing(make_task()))
    assert first.claimed == second.claimed
    assert first.tuned is not None
    assert second.tuned is not None
    assert other.tuned is not None
    assert all(torch.equal(first.tuned[n], second.tuned[n]) for n in first.tuned)
    assert not all(torch.equal(first.tuned[n], other.tuned[n]) for n in first.tuned)


def test_the_cache_answers_with_the_same_bits():
    cache = MemoryCache()
    task = make_task()
    computed = locate_task(task, settings(), owned=nothing(task), cache=cache)
    assert cache.hits == []
    answered = locate_task(make_task(), settings(), owned=nothing(task), cache=cache)
    assert cache.hits == ["dense", "ranking"]
    assert computed.claimed == answered.claimed
    assert all(torch.equal(computed.head[n], answered.head[n]) for n in computed.head)


def test_another_density_shares_the_dense_run_but_not_the_ranking():
    cache = MemoryCache()
    task = make_task()
    locate_task(task, settings(), owned=nothing(task), cache=cache)
    locate_task(task, settings(density=0.1), owned=nothing(task), cache=cache)
    assert cache.hits == ["dense"]


def test_refill_keeps_the_whole_budget_and_passes_over_what_is_owned():
    task = make_task()
    first = locate_task(task, settings(), owned=nothing(task))
    refilled = locate_task(task, settings(), owned=first.claimed)
    without = locate_task(task, settings(refill=False), owned=first.claimed)
    assert len(refilled.claimed) == len(first.claimed)
    assert len(refilled.claimed & first.claimed) == 0
    assert without.claimed == first.claimed


def test_auto_density_takes_the_smallest_budget_that_keeps_the_asked_share():
    task = make_task()
    budgets = (0.01, 0.05, 0.2, 1.0)
    easy = settings(density="auto", budgets=budgets, auto_share=0.01)
    found = locate_task(task, easy, owned=nothing(task))
    assert len(found.claimed) == round(0.01 * found.claimed.layout.total)
    hard = settings(density="auto", budgets=budgets, auto_share=1.0)
    whole = locate_task(task, hard, owned=nothing(task))
    assert whole.graft_dev is not None
    assert whole.dense_dev is not None
    assert whole.graft_dev >= whole.dense_dev or whole.claimed.density == 1.0


@pytest.mark.parametrize("name", FITTING)
def test_only_a_localizer_that_looks_at_tuned_weights_has_a_dense_run(name):
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    seen = []
    located = locate_task(
        task,
        settings(localizer=name),
        owned=nothing(task),
        progress=lambda phase, step, steps: seen.append(phase),
    )
    phases = set(seen) | set(located.seconds) | set(located.passes)
    expected = "warm-up" if name in WITHOUT_DENSE_RUN else "dense"
    assert phases == {expected, "localize"}
    assert (located.tuned is None) == (located.dense_dev is None) == (expected == "warm-up")
    assert len(located.claimed) == round(0.05 * located.claimed.layout.total)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("name", WITHOUT_DENSE_RUN)
def test_without_a_dense_run_the_head_is_the_one_fitted_to_the_base(name):
    task = make_task()
    head = locate_task(task, settings(localizer=name), owned=nothing(task)).head
    assert set(head) == set(task.head)
    for parameter_name, parameter in task.head.items():
        assert head[parameter_name].shape == parameter.shape
        assert not torch.equal(head[parameter_name], parameter)


def test_without_a_dense_run_the_cache_answers_with_the_same_bits():
    cache = MemoryCache()
    task, chosen = make_task(), settings(localizer="base_gradient")
    computed = locate_task(task, chosen, owned=nothing(task), cache=cache)
    assert cache.hits == []
    answered = locate_task(make_task(), chosen, owned=nothing(task), cache=cache)
    assert cache.hits == ["warmup", "ranking"]
    assert computed.claimed == answered.claimed
    assert computed.passes == answered.passes
    assert all(torch.equal(computed.head[n], answered.head[n]) for n in computed.head)
    other = settings(localizer="base_gradient", warmup_rows=20)
    locate_task(task, other, owned=nothing(task), cache=cache)
    assert cache.hits == ["warmup", "ranking"]


def test_the_dense_schedule_plays_no_part_without_a_dense_run():
    cache = MemoryCache()
    task = make_task()
    chosen = settings(localizer="base_gradient")
    slower = settings(localizer="base_gradient", fine_tuning=GraftingSettings().fine_tuning)
    locate_task(task, chosen, owned=nothing(task), cache=cache)
    locate_task(task, slower, owned=nothing(task), cache=cache)
    assert cache.hits == ["warmup", "ranking"]


@pytest.mark.parametrize("name", WITHOUT_DENSE_RUN)
@pytest.mark.parametrize(
    "asked", [{"density": "auto"}, {"region_start": "tuned"}, {"keep_standalone": True}]
)
def test_what_needs_tuned_weights_is_refused_without_a_dense_run(name, asked):
    with pytest.raises(InputError, match=f"{next(iter(asked))}.* needs .*{name!r}"):
        settings(localizer=name, **asked)


def test_passes_are_the_rows_that_went_through_the_model():
    task = make_task()
    rows, answered = [], []
    forward = task.forward

    def counting(inputs):
        (rows if torch.is_grad_enabled() else answered).append(len(inputs))
        return forward(inputs)

    task = replace(task, forward=counting)
    for name in FITTING:
        rows.clear()
        answered.clear()
        located = locate_task(task, settings(localizer=name), owned=nothing(task))
        assert total_passes(located.passes.values()) == Passes(sum(rows), sum(answered)), name


def test_candidates_leave_earlier_tasks_their_coordinates_and_a_task_its_budget():
    task = make_task()
    chosen = settings(mask_candidates=2)
    first = locate_task(task, chosen, owned=nothing(task))
    second = locate_task(task, chosen, owned=first.claimed)
    assert len(first.claimed) == len(second.claimed) == round(0.05 * first.claimed.layout.total)
    assert len(first.claimed & second.claimed) == 0


def test_more_candidates_than_coordinates_are_all_of_them():
    task = make_task()
    dense = locate_task(task, settings(), owned=nothing(task))
    everything = locate_task(task, settings(mask_candidates=1000), owned=nothing(task))
    assert dense.claimed == everything.claimed


def test_candidates_have_rankings_of_their_own_in_the_cache():
    cache = MemoryCache()
    task = make_task()
    for candidates in (None, 3, 4):
        chosen = settings(mask_candidates=candidates)
        locate_task(task, chosen, owned=nothing(task), cache=cache)
    assert cache.hits == ["dense", "dense"]


def test_a_rule_gives_a_task_no_more_than_is_left_of_its_kind():
    task = make_task()
    chosen = settings(localizer="bias_only", warmup_rows=0)
    first = locate_task(task, chosen, owned=nothing(task)).claimed
    second = locate_task(task, chosen, owned=first).claimed
    assert len(first) == round(0.05 * first.layout.total)
    assert first | second == biases(task.model, task.parameters)
    assert len(first & second) == 0
    third = locate_task(task, chosen, owned=first | second)
    assert len(third.claimed) == 0


def test_a_rule_that_fits_nothing_is_an_error_of_the_settings():
    task = make_task()
    with pytest.raises(InputError, match="no normalisation layers among"):
        locate_task(task, settings(localizer="layer_norm_only"), owned=nothing(task))


def test_the_cache_answers_for_a_rule_whose_ranking_is_shorter_than_the_budget_and_what_is_owned():
    task, cache = make_task(), MemoryCache()
    chosen = settings(localizer="bias_only", warmup_rows=0)
    first = locate_task(task, chosen, owned=nothing(task), cache=cache).claimed
    cache.hits.clear()
    again = locate_task(task, chosen, owned=nothing(task), cache=cache).claimed
    assert cache.hits == ["ranking"]
    assert again == first

"""Regions that may reach the upper blocks alone: every localizer, and no backward pass below."""

from dataclasses import replace

import pytest
import torch
from localization.planted import FEW
from slow_cases import slow_but
from small_tasks import BLOCKS, MemoryCache, block_task, make_task, settings

from cl_graft.errors import InputError
from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization import LOCALIZERS
from cl_graft.localization.reach import find_reach
from cl_graft.localization.region_search import find_region
from cl_graft.localization.registry import find_localizer
from cl_graft.runtime.run_context import RunContext

FITTING = sorted(set(LOCALIZERS) - {"layer_norm_only"})


def allowed(task, given):
    reach = find_reach(task.model, task.parameters, given)
    return Region.full(Layout.of(reach.parameters)).within(reach.layout)


def touched(region) -> set[int]:
    return {int(name.split(".")[1]) for name, _, _ in region.by_parameter()}


@pytest.mark.parametrize("localizer", slow_but(FEW, FITTING))
def test_every_localizer_stays_in_the_upper_blocks_and_computes_no_gradient_below(localizer):
    task, below = block_task(), []
    before = snapshot(dict(task.model.named_parameters()))
    dense = None
    if find_localizer(localizer).needs_dense_run:
        dense = find_region(task, settings(localizer=localizer)).dense
    for block in task.model["blocks"][:3]:
        block.register_forward_hook(lambda _, inputs, out: below.append(out.requires_grad))
    own = settings(localizer=localizer, layers=1)
    found = find_region(task, own, dense=dense)
    assert touched(found.region) == {3}
    assert not any(below)
    assert all(torch.equal(v, before[n]) for n, v in task.model.named_parameters())


def test_a_region_takes_its_whole_budget_from_what_it_may_reach():
    task = block_task()
    own = settings(localizer="movement", density=0.2, layers="upper")
    found = find_region(task, own)
    assert touched(found.region) == {2, 3}
    assert len(found.region) == round(0.2 * found.region.layout.total)
    more = find_region(task, replace(own, density=0.9))
    assert more.region == allowed(task, own)
    later = find_region(task, replace(own, density=0.4), owned=found.region)
    assert later.region == more.region - found.region


def test_all_layers_may_be_reached_by_their_number():
    task = block_task()
    by_number, whole = (
        find_region(task, settings(localizer="base_gradient", layers=layers))
        for layers in (BLOCKS, "all")
    )
    assert by_number.region == whole.region


def test_a_cached_ranking_answers_for_its_own_layers_alone():
    task, cache = block_task(), MemoryCache()

    def find(layers):
        chosen = settings(localizer="learned_mask", layers=layers)
        return find_region(task, chosen, context=RunContext(cache)).region

    first = find(2)
    find(1)
    assert cache.hits == ["dense"]
    again = find(2)
    assert cache.hits == ["dense", "dense", "ranking"]
    assert again == first


@pytest.mark.parametrize("bad", [0, "lower"])
def test_layers_that_are_no_number_of_blocks_are_refused(bad):
    with pytest.raises(InputError, match="layers"):
        settings(layers=bad)


def called_twice(task):
    head = task.model["head"]

    def forward(x):
        return head(x) + head(2 * x)

    return replace(task, forward=forward)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (block_task(), {"layers": 9}, r"layers must be in \[1, 4\]"),
        (make_task(), {"layers": 1}, "one list of blocks"),
        (block_task(blocks=1), {"layers": 2}, "has 1 block in 'blocks', as blocks that share"),
        (make_task(), {"localizer": "layer_norm_only"}, "no normalisation layers"),
        (called_twice(make_task()), {"retrain": False}, "2 times in a batch; head_refit_rows=0"),
    ],
)
def test_settings_that_do_not_fit_a_model_are_refused_before_anything_is_computed(
    task, changes, message
):
    phases = []
    own = settings(**changes)
    with pytest.raises(ValueError, match=message):
        find_region(task, own, context=RunContext(progress=lambda *step: phases.append(step)))
    assert phases == []


def test_biases_are_counted_in_the_upper_blocks_alone():
    task = block_task()
    biases = allowed(task, settings(localizer="bias_only", layers=1))
    layout = Layout.of(task.parameters)
    assert biases.layout == layout
    names = {name for name, _, _ in biases.by_parameter()}
    assert names == {f"blocks.3.{layer}.bias" for layer in ("0.0", "1.0", "1.2")}

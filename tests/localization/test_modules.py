"""What a region may reach: feed-forward units, modules by name, and shares of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
import transformers
from interrupted import KeptPhases, Trip
from small_tasks import MemoryCache, block_task, make_task, settings

from cl_graft.errors import InputError
from cl_graft.grafts.region import Region
from cl_graft.localization import LocalizerInputs, localize
from cl_graft.localization.modules import find_feed_forward
from cl_graft.localization.reach import find_reach
from cl_graft.localization.region_search import find_region
from cl_graft.models import graftable_parameters
from cl_graft.runtime.run_context import RunContext
from cl_graft.runtime.seeding import seeded

SIZES = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 24, "vocab_size": 40}
SMALL = SIZES | {"num_attention_heads": 2, "pad_token_id": 0}
LLAMA = {"num_key_value_heads": 1, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"num_layers": 1, "d_model": 16, "d_ff": 48, "num_heads": 2, "vocab_size": 40}
GATED = {"feed_forward_proj": "gated-gelu", "d_kv": 16}
ENDS = {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 40}
FAMILIES = {
    "bert": (transformers.BertConfig(**SMALL), "layer.1.output.dense", 24, 1),
    "mpnet": (transformers.MPNetConfig(**SMALL), "layer.1.output.dense", 24, 1),
    "modernbert": (transformers.ModernBertConfig(**SMALL, **ENDS), "layers.1.mlp.Wo", 24, 2),
    "llama": (transformers.LlamaConfig(**SMALL, **LLAMA), "layers.1.mlp.down_proj", 24, 2),
    # Its heads together are wider than the model, as is the attention of the gated T5 below.
    "qwen3": (
        transformers.Qwen3Config(**SMALL, **LLAMA, head_dim=12),
        *("layers.1.mlp.down_proj", 24, 2),
    ),
    "gpt2": (transformers.GPT2Config(**GPT2, **LLAMA), "h.1.mlp.c_proj", 64, 1),
    "t5": (transformers.T5Config(**T5, d_kv=8), "decoder.block.0.layer.2.DenseReluDense.wo", 48, 1),
    "gated t5": (
        transformers.T5Config(**T5, **GATED),
        *("decoder.block.0.layer.2.DenseReluDense.wo", 48, 2),
    ),
}
FAMILY = pytest.mark.parametrize("family", FAMILIES)


def inputs_of(family: str) -> LocalizerInputs:
    """A model of a family with random weights, and a loss of its states."""
    with seeded(0, family):
        model = transformers.AutoModel.from_config(FAMILIES[family][0]).eval()
        ids = torch.randint(3, 40, (4, 7))
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}

    def loss():
        return model(input_ids=ids, **more).last_hidden_state.square()[..., :3].mean()

    return LocalizerInputs(
        model=model,
        parameters=graftable_parameters(model),
        tuned={},
        losses=lambda step: [loss],
        dev_score=lambda: 0.0,
        train_score=lambda: 0.0,
        seed=0,
    )


def units_of(family: str, region: Region) -> dict[str, torch.Tensor]:
    """The units of a region by output matrix; every matrix of a part must have the same ones."""
    masks, found = region.masks(), {}
    transposed = family == "gpt2"
    for part in find_feed_forward(inputs_of(family).model):
        sets = []
        for name, axis in part.axes.items():
            mask = masks.pop(name)
            mask = mask.movedim(axis, 0).reshape(-1, part.width, mask.shape[1 - axis])
            assert torch.equal(mask.any(2), mask.all(2))
            sets += mask.all(2)
            assert axis == (name == next(iter(part.axes))) ^ transposed
        assert all(torch.equal(one, sets[0]) for one in sets)
        found[next(iter(part.axes))] = sets[0]
    assert not any(mask.any() for mask in masks.values())
    return found


def unit_size(family: str) -> int:
    return 16 * (1 + FAMILIES[family][3])


@FAMILY
def test_feed_forward_parts_are_found_by_their_form(family):
    _, last, width, rows = FAMILIES[family]
    model = inputs_of(family).model
    parts = find_feed_forward(model)
    assert len(parts) == 2
    assert [part.width for part in parts] == [width, width]
    assert next(iter(parts[1].axes)).endswith(f"{last}.weight")
    sizes = [model.get_parameter(name).numel() for name in parts[1].axes]
    assert sum(sizes) == (1 + rows) * 16 * width


@pytest.mark.parametrize("localizer", ["columns", "random_columns"])
@FAMILY
def test_regions_of_columns_are_whole_units_as_many_as_the_budget_holds(family, localizer):
    inputs = inputs_of(family)
    reach = find_reach(inputs.model, inputs.parameters, settings(localizer=localizer))
    size, owned = unit_size(family), Region.empty(inputs.layout)
    ranking = localize(inputs, localizer, k=5 * size, steps=1)
    for budget, units in ((1, 1), (size, 1), (5 * size + 3, 5), (2 * size - 1, 1), (10**6, None)):
        region = reach.cut(ranking, budget, without=owned)
        left = reach.total // size - len(owned) // size
        assert len(region) == size * (left if units is None else units)
        assert len(region & owned) == 0
        assert (
            sum(int(units.sum()) for units in units_of(family, region).values())
            == len(region) // size
        )
        owned |= region


def test_columns_takes_the_units_of_most_energy_in_the_summed_gradient():
    inputs = inputs_of("gated t5")
    inputs.losses(0)[0]().backward()
    energies = {}
    for part in find_feed_forward(inputs.model):
        output, *before = (inputs.parameters[name].grad for name in part.axes)
        for unit in range(part.width):
            values = torch.cat([output[:, unit], *(rows[unit] for rows in before)])
            energies[next(iter(part.axes)), unit] = float(values.square().mean())
    inputs.model.zero_grad()
    best = sorted(energies, key=energies.__getitem__, reverse=True)[:5]
    region = localize(inputs, "columns", k=5 * 48, steps=1).top(5 * 48)
    chosen = units_of("gated t5", region)
    assert {(n, u) for n, units in chosen.items() for u in units.nonzero().view(-1).tolist()} == {
        *best
    }


def test_an_interrupted_search_for_columns_ends_on_the_same_ranking():
    inputs, phases = inputs_of("llama"), KeptPhases(trip_after=2)
    whole = localize(inputs, "columns", k=48, steps=4)
    resumed = replace(inputs, checkpoint=phases.at("ranking-x"))
    with pytest.raises(Trip):
        localize(resumed, "columns", k=48, steps=4)
    assert torch.equal(localize(resumed, "columns", k=48, steps=4).order, whole.order)


FEED_FORWARD, OTHERS = ("1.0.weight", "1.2.weight"), ("0.0.weight",)
LOCALIZERS = ("movement", "learned_mask", "base_gradient", "snip_by_tensor")


def sizes_of(region: Region) -> dict[str, int]:
    """How many coordinates of a region lie in feed-forward parts, other matrices, and the rest."""
    sizes = {"mlp": 0, "attention": 0, "rest": 0}
    for name, inside, _ in region.by_parameter():
        end = name.split(".", 2)[2]
        kind = "mlp" if end in FEED_FORWARD else "attention" if end in OTHERS else "rest"
        sizes[kind] += len(inside)
    return sizes


def names_in(region: Region) -> set[str]:
    return {name for name, _, _ in region.by_parameter()}


@pytest.mark.parametrize("localizer", LOCALIZERS)
@pytest.mark.parametrize(
    ("modules", "names"),
    [
        ("mlp", {f"blocks.{b}.{end}" for b, end in product(range(4), FEED_FORWARD)}),
        ("attention", {f"blocks.{block}.0.0.weight" for block in range(4)}),
        (["*.2.1.*", "blocks.0.0"], {"blocks.2.1.0.weight", "blocks.2.1.2.weight",
                                     "blocks.2.1.0.bias", "blocks.2.1.2.bias",
                                     "blocks.0.0.0.weight"}),
        (["1.2", "*.1.2"], {f"blocks.{block}.1.2.weight" for block in range(4)}),
    ],
)  # fmt: skip
def test_a_region_lies_in_the_modules_and_takes_its_whole_budget_there(localizer, modules, names):
    if localizer.startswith("snip"):
        names = {name for name in names if name.endswith("weight")}
    given = settings(localizer=localizer, modules=modules, density=0.06)
    found = find_region(block_task(), given).region
    assert names_in(found) <= names
    assert len(found) == round(0.06 * found.layout.total)
    whole = find_region(block_task(), replace(given, density=1.0)).region
    assert names_in(whole) == names
    assert find_region(block_task(), replace(given, density=1.0), owned=found).region == (
        whole - found
    )


@pytest.mark.parametrize("localizer", LOCALIZERS)
def test_a_quota_divides_every_budget_and_each_part_is_ranked_by_the_localizer(localizer):
    task = block_task()
    quota = {"mlp": 3, "attention": 1}
    given = settings(localizer=localizer, modules=quota, density=72 / 1408)
    first = find_region(task, given).region
    assert sizes_of(first) == {"mlp": 54, "attention": 18, "rest": 0}
    if localizer not in ("learned_mask",):  # which learns other gains beside other weights
        for part, size in (("mlp", 54), ("attention", 18)):
            alone = find_region(task, replace(given, modules=part, density=size / 1408)).region
            assert alone <= first
    # Earlier tasks own nearly all of one part, and coordinates that no part has.
    lopsided = find_region(task, replace(given, modules="attention", density=0.165)).region
    biases = find_region(task, replace(given, modules="*.bias", localizer="movement")).region
    second = find_region(task, given, owned=lopsided | biases).region
    assert sizes_of(second) == {"mlp": 54, "attention": 18, "rest": 0}
    assert not len(second & lopsided)
    third = find_region(task, given, owned=lopsided | second).region
    assert sizes_of(third) == {"mlp": 54, "attention": 4 * 64 - len(lopsided) - 18, "rest": 0}


def test_the_rest_of_a_quota_is_what_no_earlier_name_has():
    given = settings(localizer="random", modules={"mlp": 0.5, "all": 0.5}, density=140 / 1408)
    sizes = sizes_of(find_region(block_task(), given).region)
    assert sizes["mlp"] == 70
    assert sizes["attention"] + sizes["rest"] == 70


def test_a_cached_ranking_answers_for_its_own_modules_alone():
    task, cache = block_task(), MemoryCache()

    def find(modules, **more):
        given = settings(localizer="columns", modules=modules, **more)
        return find_region(task, given, context=RunContext(cache)).region

    first, other = find("mlp"), find({"0.1.*": 1, "*.1.*": 3}, density=0.1)
    find("1.2")
    find({"0.1.*": 1, "*.1.*": 2}, density=0.1)
    assert cache.hits == []
    assert find("mlp") == first
    assert find({"0.1.*": 1, "*.1.*": 3}, density=0.1) == other
    assert cache.hits == ["ranking", "ranking"]
    assert all(len(inside) % 8 == 0 for _, inside, _ in first.by_parameter())


@pytest.mark.parametrize(
    "bad",
    [
        {"mlp": -0.1, "attention": 1},
        {"mlp": 0},
        {},
        [],
        "",
        {"mlp": float("nan")},
        3,
        True,
        {"mlp": True},
    ],
)
def test_modules_and_shares_that_mean_nothing_are_refused(bad):
    with pytest.raises(InputError, match="modules: "):
        settings(modules=bad)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (
            make_task(),
            {"localizer": "columns"},
            r"no feed-forward parts \(.*not experts\) among.*such as random",
        ),
        (make_task(), {"modules": "mlp"}, "none of the 4 .*leave: 0 matrices of feed-forward"),
        (make_task(), {"modules": {"attention": 1}}, "'attention' matches none"),
        (make_task(), {"modules": ["bodi"]}, "'bodi' matches .* did you mean 'body'"),
        (block_task(), {"modules": {"all": 1, "mlp": 1}}, "'mlp' matches none .* others$"),
        (block_task(), {"modules": "1", "localizer": "bias_only"}, "matches none.*Known: bias"),
        (
            block_task(),
            {"modules": {"mlp": 1, "attention": 1}, "localizer": "columns"},
            "'attention' matches none of the 0 parameters that localizer.*leave: 0 matrices",
        ),
        (block_task(), {"modules": "mlp", "localizer": "bias_only"}, "'mlp' matches none"),
    ],
)
def test_modules_that_do_not_fit_a_model_are_refused_before_anything_is_computed(
    task, changes, message
):
    phases = []
    with pytest.raises(InputError, match=message):
        find_region(
            task,
            settings(**changes),
            context=RunContext(progress=lambda *step: phases.append(step)),
        )
    assert phases == []

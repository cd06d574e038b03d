"""Flat storage: one buffer under all parameters, which nobody else notices."""

from __future__ import annotations

import copy

import pytest
import torch
from region_strategies import TwoLayers, model_bits
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn
from two_layer_banks import LAYOUT

from cl_graft.grafts.graft import find_parameters
from cl_graft.grafts.region import Layout
from cl_graft.inference.flat_parameters import flat_buffer, flatten_, unflatten_


def _same(model: nn.Module, other: nn.Module) -> bool:
    now, then = model_bits(model), model_bits(other)
    return all(torch.equal(now[name], then[name]) for name in then)


def test_a_flat_model_keeps_its_bits_and_its_parameter_objects() -> None:
    model = TwoLayers()
    before = list(model.parameters())
    buffer = flatten_(model, LAYOUT)
    assert _same(model, TwoLayers())
    assert all(now is then for now, then in zip(model.parameters(), before, strict=True))
    assert torch.equal(buffer, torch.cat([p.detach().view(-1) for p in before]))


def test_writing_into_the_buffer_writes_into_the_parameters() -> None:
    model = TwoLayers()
    flatten_(model, LAYOUT)[LAYOUT.starts[2] + 3] = 5.0
    assert model.norm.weight[3] == 5.0


def test_a_flat_model_stays_in_its_buffer() -> None:
    model = TwoLayers()
    assert flatten_(model, LAYOUT).data_ptr() == flatten_(model, LAYOUT).data_ptr()


def test_a_flat_model_trains_as_before() -> None:
    models = TwoLayers(), TwoLayers()
    flatten_(models[0], LAYOUT)
    for model in models:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for row in torch.eye(4):
            optimizer.zero_grad()
            model(row[None]).square().sum().backward()
            optimizer.step()
    assert _same(*models)


@pytest.mark.parametrize("change", ["deepcopy", "dtype", "assign"])
def test_what_moves_a_parameter_ends_the_flatness(change: str) -> None:
    model = TwoLayers()
    flatten_(model, LAYOUT)
    if change == "deepcopy":
        model = copy.deepcopy(model)
    elif change == "dtype":
        model.bfloat16()
    else:
        model.load_state_dict(TwoLayers().state_dict(), assign=True)
    assert flat_buffer(find_parameters(model, LAYOUT)) is None


def test_safetensors_saves_and_loads_a_flat_model(tmp_path) -> None:
    model = TwoLayers()
    flatten_(model, LAYOUT)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    loaded = TwoLayers(seed=1)
    flatten_(loaded, LAYOUT)
    loaded.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert _same(loaded, TwoLayers())
    assert flat_buffer(find_parameters(loaded, LAYOUT)) is not None


def test_a_model_that_is_flat_no_more_is_saved_in_every_way(tmp_path) -> None:
    model = TwoLayers()
    flatten_(model, LAYOUT)
    with pytest.raises(RuntimeError, match="None is covering the entire storage"):
        save_model(model, str(tmp_path / "model.safetensors"))
    unflatten_(model, LAYOUT)
    assert flat_buffer(find_parameters(model, LAYOUT)) is None
    save_model(model, str(tmp_path / "model.safetensors"))
    loaded = TwoLayers(seed=1)
    load_model(loaded, str(tmp_path / "model.safetensors"))
    assert _same(loaded, TwoLayers())


def test_transformers_saves_a_flat_model(tmp_path, tiny_gpt2) -> None:
    from transformers import AutoModelForCausalLM

    from cl_graft.models import graftable_parameters

    model = AutoModelForCausalLM.from_pretrained(tiny_gpt2)  # its embeddings are tied
    before = model_bits(model)
    flatten_(model, Layout.of(graftable_parameters(model)))
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    now = model_bits(again)
    assert all(torch.equal(now[name], before[name]) for name in before)


def test_one_parameter_object_under_two_names_stays_tied() -> None:
    model = TwoLayers()
    model.again = nn.Linear(4, 6)
    model.again.weight = model.first.weight
    flatten_(model, LAYOUT)
    assert model.again.weight is model.first.weight


def test_parameters_that_share_memory_with_others_are_refused() -> None:
    model = TwoLayers()
    model.register_buffer("shadow", model.first.weight.detach()[2:4])
    with pytest.raises(ValueError, match=r"first\.weight and shadow share memory"):
        flatten_(model, LAYOUT)
    assert _same(model.first, TwoLayers().first)


def test_parameters_of_two_dtypes_are_refused() -> None:
    model = TwoLayers()
    model.norm.double()
    with pytest.raises(ValueError, match=r"one dtype.*float32.*float64"):
        flatten_(model, LAYOUT)


def test_neighbours_in_memory_by_chance_are_no_buffer() -> None:
    whole = torch.zeros(10)
    assert flat_buffer({"a": whole[:4], "b": whole[5:]}) is None
    assert flat_buffer({"a": whole[:4], "b": whole[4:]}) is not None

"""Which parameters may be grafted."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

from cl_graft.models import block_stacks, graftable_parameters
from cl_graft.runtime.forward_override import override_forward


def empty(architecture: str, config: object) -> nn.Module:
    """Build a model without storage for its weights."""
    with torch.device("meta"):
        return getattr(transformers, architecture)(config)


def size(parameters: dict[str, nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters.values())


@pytest.mark.parametrize("architecture", ["RobertaModel", "RobertaForMaskedLM"])
def test_roberta_base_has_192_tensors_and_85_054_464_coordinates(architecture):
    # Twelve blocks of 7,087,872 each, the setting of https://arxiv.org/abs/2302.06600.
    model = empty(architecture, transformers.RobertaConfig())
    graftable = graftable_parameters(model)
    assert len(graftable) == 192
    assert size(graftable) == 85_054_464


SMALL = {"num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4}
LLAMA = transformers.LlamaConfig(**SMALL, intermediate_size=64)
DISTILBERT = transformers.DistilBertConfig(n_layers=2, dim=32, n_heads=4)
T5 = transformers.T5Config(num_layers=2, d_model=32, d_kv=8, d_ff=64, num_heads=4)
HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
BART = transformers.BartConfig(d_model=32, encoder_layers=2, decoder_layers=3, **HEADS)
GPT2 = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=4)


@pytest.mark.parametrize(
    ("architecture", "config", "stacks"),
    [
        ("BertForMaskedLM", transformers.BertConfig(**SMALL), ["bert.encoder.layer"]),
        ("ElectraModel", transformers.ElectraConfig(**SMALL), ["encoder.layer"]),
        ("DistilBertModel", DISTILBERT, ["transformer.layer"]),
        ("GPT2LMHeadModel", GPT2, ["transformer.h"]),
        ("LlamaForCausalLM", LLAMA, ["model.layers"]),
        ("ViTModel", transformers.ViTConfig(**SMALL), None),
        ("T5Model", T5, ["encoder.block", "decoder.block"]),
        ("BartModel", BART, ["encoder.layers", "decoder.layers"]),
    ],
)
def test_the_graftable_parameters_are_those_of_the_blocks(architecture, config, stacks):
    model = empty(architecture, config)
    if stacks is not None:
        assert list(block_stacks(model)) == stacks
    assert len(block_stacks(model)) == (2 if config.is_encoder_decoder else 1)
    of_blocks = {
        name
        for path in block_stacks(model)
        for name, _ in model.get_submodule(path).named_parameters(prefix=path)
        if "relative_attention_bias" not in name  # T5's table of positions, in a first block
    }
    graftable = graftable_parameters(model)
    assert set(graftable) == of_blocks
    assert not any("embed" in name or "pooler" in name or "lm_head" in name for name in graftable)
    names = [name for name, _ in model.named_parameters() if name in graftable]
    assert list(graftable) == names


def pair() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


def mixture() -> nn.ModuleDict:
    experts = nn.ModuleList([pair(), pair()])
    return nn.ModuleDict({"gate": nn.Linear(2, 2), "experts": experts})


def test_blocks_inside_blocks_do_not_count_twice():
    model = nn.ModuleDict({"layers": nn.ModuleList([mixture(), mixture()])})
    assert block_stacks(model) == ("layers",)
    assert "layers.0.gate.weight" in graftable_parameters(model)


def test_a_block_whose_forward_is_replaced_for_a_while_is_like_the_others():
    blocks = nn.ModuleList([pair(), pair()])
    with override_forward(blocks[0], lambda _, x: x):
        assert type(blocks[0]) is not type(blocks[1])
        assert block_stacks(nn.ModuleDict({"blocks": blocks})) == ("blocks",)


def test_a_list_of_single_layers_or_of_unlike_elements_is_no_stack():
    assert block_stacks(nn.ModuleList(nn.Linear(2, 2) for _ in range(3))) == ()
    unlike = nn.ModuleList([pair(), nn.ModuleDict({"a": pair()})])
    assert block_stacks(nn.Sequential(unlike)) == ()
    assert block_stacks(nn.ModuleList()) == ()


def test_a_model_without_a_stack_is_graftable_everywhere_but_in_its_heads():
    model = nn.ModuleDict(
        {
            "features": nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2)),
            "heads": nn.ModuleDict({"0": nn.Linear(2, 2)}),
        }
    )
    assert set(graftable_parameters(model)) == {
        name for name, _ in model.named_parameters() if name.startswith("features.")
    }
    wrapped = nn.ModuleDict({"model": model})
    assert not any("heads" in name for name in graftable_parameters(wrapped))


def test_exclude_and_keep_narrow_the_choice():
    model = nn.ModuleDict({name: nn.Linear(2, 2) for name in ("a", "headset", "heads")})
    parts = ("a.weight", "a.bias", "headset.weight", "headset.bias")
    assert set(graftable_parameters(model)) == set(parts)
    chosen = graftable_parameters(model, exclude=("a",), keep=lambda name: name.endswith("bias"))
    assert set(chosen) == {"headset.bias", "heads.bias"}


def test_a_parameter_shared_by_two_blocks_is_listed_once():
    blocks = nn.ModuleList([pair(), pair()])
    blocks[1][0].weight = blocks[0][0].weight
    assert len(graftable_parameters(blocks)) == 7


def test_nothing_to_graft_is_an_error():
    with pytest.raises(ValueError, match="no graftable parameters"):
        graftable_parameters(nn.ModuleDict({"heads": nn.Linear(2, 2)}))

"""Fingerprints are equal exactly for equal bits under equal names."""

from __future__ import annotations

import hashlib

import pytest
import torch
from region_strategies import TwoLayers
from torch import nn

from cl_graft.grafts.hashing import (
    environment,
    fingerprint_weights,
    hash_tensors,
    model_sha256,
    tensor_bytes,
)


def test_the_hash_is_sha256_over_names_dtypes_shapes_and_bytes():
    expected = hashlib.sha256()
    expected.update(b"a|torch.float32|(1,)|" + b"\x00\x00\x80\x3f")
    expected.update(b"b|torch.uint8|(1, 2)|" + b"\x01\x02")
    tensors = {"b": torch.tensor([[1, 2]], dtype=torch.uint8), "a": torch.ones(1)}
    assert hash_tensors(tensors) == expected.hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        {"b": torch.zeros(2)},
        {"a": torch.zeros(1, 2)},
        {"a": torch.zeros(2, dtype=torch.int32)},
        {"a": torch.tensor([0.0, -0.0])},
        {"a": torch.zeros(2), "b": torch.zeros(0)},
    ],
)
def test_another_name_shape_dtype_or_bit_gives_another_hash(other):
    assert hash_tensors(other) != hash_tensors({"a": torch.zeros(2)})


def test_the_hash_does_not_depend_on_order_or_memory_layout():
    a, b = torch.arange(6.0).reshape(2, 3), torch.tensor(5)
    assert hash_tensors({"a": a, "b": b}) == hash_tensors({"b": b, "a": a.T.contiguous().T})


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float16, torch.int64])
def test_tensor_bytes_has_every_byte_of_any_dtype(dtype):
    tensor = torch.ones(3, 2).to(dtype)
    assert len(tensor_bytes(tensor)) == 6 * tensor.element_size()
    assert len(tensor_bytes(tensor[:0])) == 0
    assert len(tensor_bytes(tensor[0, 0])) == tensor.element_size()


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = TwoLayers()
        self.register_buffer("positions", torch.arange(3), persistent=False)
        self.heads = nn.ModuleDict({"1": nn.Linear(3, 2)})


def test_the_base_fingerprint_covers_parameters_buffers_and_tokenizer_but_not_heads():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _Model()
    before = model_sha256(model)
    with torch.no_grad():
        model.heads["1"].weight.add_(1)
    assert model_sha256(model) == before
    assert fingerprint_weights(before, tokenizer="{ }") != fingerprint_weights(
        before, tokenizer="{}"
    )
    with torch.no_grad():
        model.positions.add_(1)
    moved = model_sha256(model)
    assert moved != before
    with torch.no_grad():
        model.backbone.norm.bias[0] = -0.0
    assert model_sha256(model) != moved
    assert model_sha256(model, exclude=()) != model_sha256(model)


def test_the_environment_names_what_bits_depend_on():
    found = environment()
    assert found["torch"] == torch.__version__
    assert found["threads"] == str(torch.get_num_threads())
    assert found["device"] == "cpu"
    assert all(isinstance(value, str) and value for value in found.values())

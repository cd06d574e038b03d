"""Activation memory counts what the backward pass needs beside the model, each byte once."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from cl_graft.training.activation_memory import activation_bytes


def test_a_linear_layer_keeps_its_input() -> None:
    layer, x = nn.Linear(10, 3), torch.randn(7, 10)
    assert activation_bytes(layer, lambda: layer(x).sum()) == 7 * 10 * 4


def test_a_frozen_layer_keeps_nothing_of_its_input() -> None:
    layer = nn.Linear(10, 3).requires_grad_(False)
    x = torch.randn(7, 10, requires_grad=True)
    assert activation_bytes(layer, lambda: layer(x).sum()) == 0


def test_what_several_layers_keep_counts_once() -> None:
    layers, x = nn.ModuleList([nn.Linear(10, 3), nn.Linear(10, 4)]), torch.randn(7, 10)
    found = activation_bytes(layers, lambda: sum(layer(x).sum() for layer in layers))  # pyright: ignore[reportArgumentType]
    assert found == 7 * 10 * 4


def test_a_view_counts_as_the_whole_that_it_keeps_alive() -> None:
    layer, x = nn.Linear(10, 3), torch.randn(7, 20)
    assert activation_bytes(layer, lambda: layer(x[:, :10]).sum()) == 7 * 20 * 4


def test_memory_grows_with_rows_and_shrinks_with_checkpointing() -> None:
    torch.manual_seed(0)
    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(4)
    )

    def measure(rows: int, *, again: bool) -> int:
        def loss() -> torch.Tensor:
            x = torch.randn(rows, 16)
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=False) if again else block(x)
            return x.sum()

        return activation_bytes(blocks, loss)

    plain, twice = measure(8, again=False), measure(16, again=False)
    assert twice == 2 * plain
    # Checkpointed blocks keep their inputs: 16 of 144 numbers a row.
    assert measure(8, again=True) <= 0.2 * plain
    assert measure(8, again=True) >= 4 * 8 * 16 * 4


def test_gradients_are_as_without_measuring() -> None:
    layer, x = nn.Linear(4, 2), torch.randn(3, 4)
    activation_bytes(layer, lambda: layer(x).sum())
    assert layer.weight.grad is None
    layer(x).sum().backward()
    assert layer.weight.grad is not None


def test_nothing_of_the_pass_stays_alive() -> None:
    def measured() -> weakref.ref[nn.Parameter]:
        layer, x = nn.Linear(4, 4), torch.randn(3, 4)
        activation_bytes(layer, lambda: (torch.sigmoid(layer(x)) ** 2).sum())
        return weakref.ref(layer.weight)

    weight = measured()
    gc.collect()
    assert weight() is None

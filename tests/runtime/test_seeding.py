"""Random choices are functions of what they belong to."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import quick

from cl_graft.runtime import seeding
from cl_graft.runtime.seeding import derive, generator, permutation, seeded


def test_derived_seeds_are_the_same_in_every_process():
    assert derive(3, "qnli", "dense", 7) == 5_197_853_146_886_539_656


@quick
@given(st.integers(), st.lists(st.text() | st.integers()))
def test_derived_seeds_lie_in_63_bits(seed, keys):
    assert 0 <= derive(seed, *keys) < 2**63
    torch.Generator().manual_seed(derive(seed, *keys))


def test_other_keys_give_other_seeds():
    some = [("a",), ("b",), ("a", "b"), ("ab",), (1,), ("1",), (1, 1)]
    choices = [(0,), (1,), *((0, *keys) for keys in some)]
    assert len({derive(*choice) for choice in choices}) == len(choices)


def test_a_permutation_depends_on_its_keys_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    torch.rand(3, generator=generator(0, "a"))
    first = permutation(50, 0, "a")
    assert sorted(first.tolist()) == list(range(50))
    assert torch.equal(first, permutation(50, 0, "a"))
    assert not torch.equal(first, permutation(50, 0, "b"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("accelerator", [False, True])
def test_the_global_generators_are_seeded_as_torch_seeds_them(accelerator, monkeypatch):
    torch.manual_seed(7)
    expected = torch.get_rng_state()
    torch.rand(3)
    seen: list[int] = []
    torchs_own = torch.manual_seed
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator)
    monkeypatch.setattr(torch, "manual_seed", lambda seed: (seen.append(seed), torchs_own(seed)))
    seeding.seed_generators(7)
    assert torch.equal(torch.get_rng_state(), expected)
    assert seen == [7] * accelerator


def test_seeded_gives_the_same_draws_anywhere_and_restores_the_global_generator():
    with seeded(0, "dropout", 3):
        expected = torch.rand(4)
    torch.rand(7)
    before = torch.get_rng_state()
    with suppress(KeyError), seeded(0, "dropout", 3):
        assert torch.equal(torch.rand(4), expected)
        raise KeyError("stop")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seeded_block_puts_the_generator_of_every_device_back(monkeypatch):
    devices = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    every = [torch.default_generator, *devices]
    monkeypatch.setattr(seeding, "global_generators", lambda: every)
    before = [each.get_state() for each in every]
    with suppress(KeyError), seeded(0, "dropout"):
        for each in every:
            torch.rand(3, generator=each)
        raise KeyError
    for each, state in zip(every, before, strict=True):
        assert torch.equal(each.get_state(), state)

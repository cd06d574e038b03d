"""Banks of every family on tiny checkpoints, learned once a session and only read by tests."""

from __future__ import annotations

import pytest
from tiny_runs import banks_of

FAMILIES = {
    "mean": ("bert", {"family": "encoder"}),
    "first": ("roberta", {"family": "encoder", "pooling": "first"}),
    "half": ("bert", {"family": "encoder", "dtype": "bfloat16"}),
    "autocast": ("roberta", {"family": "encoder", "pooling": "first", "precision": "bf16"}),
    "masked_lm": ("roberta", {"family": "masked_lm"}),
    "causal_lm": ("llama", {"family": "causal_lm"}),
    "gpt2": ("gpt2", {"family": "causal_lm"}),
}


@pytest.fixture(scope="session")
def bank_of_family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Return a function from a name of `FAMILIES` to a bank of two tasks, the second on top."""
    regions_with_norms_and_biases = {"localizer": "movement", "max_length": 64}
    return banks_of(FAMILIES, regions_with_norms_and_biases, request, tmp_path_factory)

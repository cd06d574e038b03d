"""Banks of every family on tiny checkpoints, learned once a session and only read by tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_runs import tiny_run, write_pairs

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
    made: dict[str, Path] = {}

    def bank(name: str) -> Path:
        if name not in made:
            kind, settings = FAMILIES[name]
            settings = {"localizer": "movement", **settings}  # regions with norms and biases
            model = request.getfixturevalue(f"tiny_{kind}")
            out = tmp_path_factory.mktemp(name)
            tasks = ["scope", str(write_pairs(out / "answers.jsonl"))]
            made[name] = tiny_run(out, model, tasks, max_length=64, **settings) / "bank"
        return made[name]

    return bank

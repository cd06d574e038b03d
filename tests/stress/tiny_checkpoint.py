"""Checkpoints with random weights, and the settings of runs that take seconds."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

QUICK: dict[str, Any] = {
    "stream.shots": 8,
    "fine_tuning.steps": 4,
    "stream.max_length": 24,
    "stream.max_test": 20,
    "grafting.density": 0.01,
    "grafting.mask_steps": 2,
    "grafting.mask_batch": 16,
    "fine_tuning.evaluations": 1,
    "model.device": "cpu",
}
"""Settings of a run of seconds, by dotted name."""


def tiny_checkpoint(folder: Path) -> Path:
    """Return the tiny BERT of the tests under a folder; it is made where it is missing."""
    place = folder / "tiny_bert"
    if not (place / "config.json").is_file():
        _builders().tiny_bert(place)
    return place


def roberta_base_shape(folder: Path) -> Path:
    """Return an encoder of RoBERTa-base's blocks, 85,054,464 graftable weights, under a folder.

    Its vocabulary is that of the tests' RoBERTa, so that its embeddings are small.
    """
    place = folder / "roberta_base"
    if (place / "config.json").is_file():
        return place
    import torch
    from transformers import AutoTokenizer, RobertaConfig, RobertaModel

    tokenizer = AutoTokenizer.from_pretrained(_builders().tiny_roberta(folder / "tiny_roberta"))
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=258)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = RobertaModel(config, add_pooling_layer=False)
    tokenizer.save_pretrained(place)
    model.save_pretrained(place)
    return place


def _builders() -> ModuleType:
    tests = str(Path(__file__).parents[1])
    if tests not in sys.path:
        sys.path.append(tests)
    import tiny_models

    return tiny_models

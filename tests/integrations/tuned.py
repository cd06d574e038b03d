"""Sources to import, made by the real libraries on tiny checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

TEXTS = ["It was a delight.", "The film is slow and the plot is thin, but I liked it!"]
LABELS = {0: "no", 1: "maybe", 2: "yes"}


def classifier(base: Path) -> nn.Module:
    """A sequence classifier of transformers on a checkpoint, its head drawn from a seed."""
    from transformers import AutoModelForSequenceClassification

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return AutoModelForSequenceClassification.from_pretrained(
            base, num_labels=3, id2label=LABELS, label2id={n: i for i, n in LABELS.items()}
        ).eval()


def nudge_(model: nn.Module, *, share: float = 0.02, of: str = "layer") -> dict[str, Tensor]:
    """Move some elements of every matrix of the blocks; return the differences, dense, by name."""
    generator = torch.Generator().manual_seed(1)
    moved: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if of not in name or parameter.dim() != 2:
            continue
        chosen = torch.rand(parameter.shape, generator=generator) < share
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter += chosen * (0.1 * torch.randn(parameter.shape, generator=generator))
        moved[name] = parameter.detach() - before
    return moved


def logits_of(model: Any, folder: Path, text: str) -> Tensor:
    """What a classifier of transformers answers one text, (labels,)."""
    from transformers import AutoTokenizer

    batch = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.no_grad():
        return model(**batch).logits[0]

"""Time and memory of a training step: a region against what one would pick instead.

Every variant is a function that sets up a model of its own and returns one whole step (forward,
backward, optimiser), so that two of them can be timed in alternating pairs in one process, and one
of them measured for memory in a fresh one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from time_and_memory import pairs_apart, peak_memory
from torch import Tensor, nn

import cl_graft.models  # noqa: F401  Before transformers, which needs torchvision's operators.
from cl_graft.grafts.region import Layout, Region
from cl_graft.training.region_parameters import RegionParameters

Step = Callable[[], None]


@dataclass(frozen=True)
class Shape:
    """A model with random weights and the batch it is fed."""

    name: str = "base"
    rows: int = 8
    tokens: int = 64
    coordinates: int = 8505
    device: str = "cpu"
    autocast: bool = False

    def model(self) -> nn.Module:
        """Return the encoder, embeddings frozen, in eval mode."""
        from transformers import RobertaConfig, RobertaModel

        sizes = {
            "tiny": {
                "num_hidden_layers": 2,
                "hidden_size": 48,
                "num_attention_heads": 4,
                "intermediate_size": 96,
                "vocab_size": 200,
            },
            "base": {},
            "large": {
                "num_hidden_layers": 24,
                "hidden_size": 1024,
                "num_attention_heads": 16,
                "intermediate_size": 4096,
            },
        }
        torch.manual_seed(0)
        config = RobertaConfig(**sizes[self.name])
        model = _Classifier(RobertaModel(config, add_pooling_layer=False), config.hidden_size)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("embeddings" not in name)
        return model.to(self.device).eval()

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return token ids (rows, tokens) and classes (rows,)."""
        draw = torch.Generator().manual_seed(1)
        ids = torch.randint(10, 190, (self.rows, self.tokens), generator=draw)
        return ids.to(self.device), (torch.arange(self.rows) % 2).to(self.device)

    def graftable(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Return the block parameters."""
        return {name: p for name, p in model.named_parameters() if ".layer." in name}

    def head(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the parameters of the head, which is trained beside the blocks."""
        return list(model.get_submodule("head").parameters())

    def compute_loss(self, model: nn.Module) -> Callable[[], Tensor]:
        """Return the function that computes the loss of the batch."""
        ids, classes = self.batch()

        def loss() -> Tensor:
            with torch.autocast(ids.device.type, torch.bfloat16, enabled=self.autocast):
                logits = model(ids)
            return nn.functional.cross_entropy(logits.float(), classes)

        return loss

    def region(self, model: nn.Module, coordinates: int | None = None) -> Region:
        """Draw a region of the block parameters."""
        layout = Layout.of(self.graftable(model))
        draw = torch.Generator().manual_seed(2)
        return Region.of(layout, draw_distinct(layout.total, coordinates or self.coordinates, draw))


def draw_distinct(total: int, count: int, draw: torch.Generator) -> Tensor:
    """Draw different whole numbers below `total`; of many, without a permutation of them all."""
    if total <= 10**8:
        return torch.randperm(total, generator=draw)[:count]
    some = torch.randint(total, (count + count // 8,), generator=draw).unique()
    return some[torch.randperm(len(some), generator=draw)[:count]]


SHAPES = {name: Shape(name) for name in ("tiny", "base", "large")}


class _Classifier(nn.Module):
    def __init__(self, encoder: nn.Module, hidden: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(hidden, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.encoder(ids).last_hidden_state[:, 0])


def _optimizer(kind: str, parameters: list[Any]) -> torch.optim.Optimizer:
    if kind == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-5)
    return torch.optim.SGD(parameters, lr=1e-3)


def _make_step(shape: Shape, model: nn.Module, optimizer: str) -> Step:
    """Return a step of whatever of a model requires gradients."""
    loss = shape.compute_loss(model)
    steps = _optimizer(optimizer, [p for p in model.parameters() if p.requires_grad])

    def step() -> None:
        steps.zero_grad()
        loss().backward()
        steps.step()

    return step


def full_step(shape: Shape, optimizer: str) -> Step:
    """Train every block parameter and the head."""
    return _make_step(shape, shape.model(), optimizer)


def region_step(shape: Shape, optimizer: str) -> Step:
    """Train a region and the head."""
    model = shape.model()
    live = RegionParameters(model, shape.region(model))
    loss = shape.compute_loss(model)
    steps = _optimizer(optimizer, [live.vector, *shape.head(model)])

    def step() -> None:
        steps.zero_grad()
        loss().backward()
        steps.step()
        live.write_()

    return step


def limit(shape: Shape, optimizer: str) -> Step:
    """Go forward and back to the first block's input, train the head alone: no less can be done."""
    model = shape.model()
    for parameter in shape.graftable(model).values():
        parameter.requires_grad_(False)

    def ask(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return output.requires_grad_()

    model.get_submodule("encoder.embeddings").register_forward_hook(ask)
    return _make_step(shape, model, optimizer)


def lora_r1_all_linear_step(shape: Shape, optimizer: str) -> Step:
    """PEFT's LoRA of rank 1 on every linear layer of the blocks."""
    from peft import LoraConfig

    return peft_step(shape, optimizer, LoraConfig(r=1, target_modules="all-linear"))


def lora_r1_query_value_step(shape: Shape, optimizer: str) -> Step:
    """PEFT's LoRA of rank 1 on query and value, its default for this model."""
    from peft import LoraConfig

    return peft_step(shape, optimizer, LoraConfig(r=1, target_modules=["query", "value"]))


def shira_step(shape: Shape, optimizer: str) -> Step:
    """PEFT's SHiRA, a sparse high-rank adapter on every linear layer of the blocks."""
    from peft import ShiraConfig

    return peft_step(shape, optimizer, ShiraConfig(r=1, target_modules="all-linear"))


def peft_step(shape: Shape, optimizer: str, config: Any) -> Step:
    """Train an adapter of PEFT's on the encoder, and the head as far as it is trained."""
    from peft import get_peft_model

    model: Any = shape.model()
    head = copy.deepcopy(model.head)
    model.encoder.requires_grad_(False)
    model.encoder = get_peft_model(model.encoder, config)
    model.head = head
    return _make_step(shape, model, optimizer)


VARIANTS: dict[str, Callable[[Shape, str], Step]] = {
    variant.__name__: variant
    for variant in (
        full_step,
        region_step,
        limit,
        lora_r1_all_linear_step,
        lora_r1_query_value_step,
        shira_step,
    )
}


def prepare(variant: str, shape: Shape, optimizer: str) -> Step:
    """Set a variant up, go forward once, and return three of its steps (for `peak_memory`)."""
    step = VARIANTS[variant](shape, optimizer)
    with torch.no_grad():
        shape.compute_loss(shape.model())()

    def steps() -> None:
        for _ in range(3):
            step()

    return steps


def step_ratios(
    a: str, b: str, shape: Shape, *, threads: int, repeats: int = 7, optimizer: str = "sgd"
) -> tuple[list[float], list[float], list[float]]:
    """Time two variants in alternating pairs, each in a process of its own."""
    one, other = (partial(VARIANTS[name], shape, optimizer) for name in (a, b))
    first, second = pairs_apart(one, other, threads=threads, repeats=repeats)
    return [x / y for x, y in zip(first, second, strict=True)], first, second


def memory_ratio(
    a: str,
    b: str,
    shape: Shape,
    *,
    repeats: int,
    threads: int,
    optimizer: str = "sgd",
    allocator: Literal["exact", "default"] = "default",
) -> tuple[list[float], list[int], list[int]]:
    """Measure the peak memory of three steps of two variants, each in a fresh process.

    With the system's own allocator: what a user's process needs, the heap's holes included.
    """
    peaks: tuple[list[int], list[int]] = ([], [])
    for _ in range(repeats):
        for place, variant in enumerate((a, b)):
            peak = peak_memory(
                prepare, variant, shape, optimizer, threads=threads, allocator=allocator
            )
            peaks[place].append(peak.memory if peak.device is None else peak.device)
    return [x / y for x, y in zip(*peaks, strict=True)], *peaks

"""Low-rank updates with peft: one a task, one for all, or one a task in orthogonal subspaces.

A LoRA adds ``(alpha / rank) B A`` to the weight of a linear layer (Hu et al., 2022,
https://arxiv.org/abs/2106.09685). B starts at 0, so every task starts at the base.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.runtime.seeding import derive, seeded
from cl_graft.strategies.baselines.own_values import (
    OPTIMIZER,
    OWN_VALUES,
    RATES,
    OwnValues,
    TrainOnly,
    held_values,
    learning_rate,
    with_own_optimizer,
)
from cl_graft.strategies.baselines.stored_bytes import bytes_of, plugin_of
from cl_graft.strategies.heads import carrier_of
from cl_graft.strategies.method_settings import Setting
from cl_graft.strategies.method_size import Room, Size
from cl_graft.strategies.registered import BY_LABEL, StrategyRow
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.linear_layers import is_conv1d

__all__ = ["ROWS", "OrthogonalLoRA", "add_lora_", "lora_parameters"]


class OrthogonalLoRA(TrainOnly, supports_distributed=False):
    """Give every task a LoRA whose A is pushed to be orthogonal to those of earlier tasks.

    O-LoRA (Wang et al., 2023, https://arxiv.org/abs/2310.14152): the loss gets
    ``weight · Σ |A_i Aᵀ|`` over earlier tasks i and layers. All tasks are answered by the base with
    all LoRAs added up, so a finished one is merged into the weights and only its A is kept. Earlier
    answers change as far as the subspaces are not orthogonal.

    Runs at: before_training_exp, before_backward, after_training_exp.

    Args:
        weight: Of the penalty; 0 leaves LoRAs added up one after the other.
        seed: Draws each task's A.

    Attributes:
        bases: The A of earlier tasks, each (rank, inputs), by layer.
    """

    def __init__(self, *, weight: float, seed: int) -> None:
        super().__init__(lora_parameters)
        self.weight = weight
        self.seed = seed
        self.bases: dict[str, list[Tensor]] = {}

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Start a new LoRA at zero."""
        super().before_training_exp(strategy, **kwargs)
        label = int(strategy.experience.task_label)
        with seeded(derive(self.seed, label), "o_lora"):
            for _, layer in _lora_layers(carrier_of(strategy.model)):
                layer.reset_lora_parameters("default", True)

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add the penalty."""
        if not self.bases:
            return
        overlap = torch.zeros((), device=strategy.device)
        for name, layer in _lora_layers(carrier_of(strategy.model)):
            now = layer.lora_A["default"].weight
            overlap = overlap + sum((now @ then.T).abs().sum() for then in self.bases[name])
        strategy.loss = strategy.loss + self.weight * overlap

    @torch.no_grad()
    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Add the LoRA to the weights, and keep its A."""
        for name, layer in _lora_layers(carrier_of(strategy.model)):
            now = layer.lora_A["default"].weight
            self.bases.setdefault(name, []).append(now.detach().clone())
            layer.get_base_layer().weight += layer.get_delta_weight("default")
            layer.lora_B["default"].weight.zero_()


def add_lora_(
    model: TaskModel, *, rank: int, alpha: int, seed: int, everywhere: bool = True
) -> None:
    """Put LoRAs beside graftable linear layers of a model, and freeze the rest.

    Args:
        model: The model, in place; its parameters get other names.
        rank: Rows of A.
        alpha: The update is scaled by ``alpha / rank``.
        seed: Draws A.
        everywhere: Beside all of them. Else where peft puts them in an architecture that it knows:
            for most beside query and value, as in the paper.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as USUAL

    kind = cast(Any, model.backbone.config).model_type
    known = None if everywhere else USUAL.get(kind)
    places = known or [name.removeprefix("backbone.") for name in _linears(model)]
    transposed = any(is_conv1d(module) for module in model.modules())
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=places, fan_in_fan_out=transposed)  # pyright: ignore[reportCallIssue]
    with seeded(seed, "lora"):
        inject_adapter_in_model(config, model.backbone)
    model.requires_grad_(False)


def lora_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the A and B of a model by their full names."""
    return {name: p for name, p in model.named_parameters() if ".lora_" in name}


def _linears(model: nn.Module) -> dict[str, nn.Module]:
    """Return the graftable linear layers by their paths."""
    chosen = set(graftable_parameters(model))
    return {
        name: module
        for name, module in model.named_modules()
        if (isinstance(module, nn.Linear) or is_conv1d(module)) and f"{name}.weight" in chosen
    }


def _lora_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    from peft.tuners.lora import LoraLayer

    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            yield name, module


def _with_lora(inputs: StrategyInputs) -> None:
    own = inputs.settings
    model = inputs.model.task_model
    add_lora_(model, rank=own["rank"], alpha=own["alpha"], seed=inputs.seed)


def _lora(inputs: StrategyInputs) -> SupervisedTemplate:
    _with_lora(inputs)
    return with_own_optimizer(inputs, OwnValues(lora_parameters))


def _sequential_lora(inputs: StrategyInputs) -> SupervisedTemplate:
    _with_lora(inputs)
    return with_own_optimizer(inputs, TrainOnly(lora_parameters))


def _o_lora(inputs: StrategyInputs) -> SupervisedTemplate:
    _with_lora(inputs)
    plugin = OrthogonalLoRA(weight=inputs.settings["orthogonality"], seed=inputs.seed)
    return with_own_optimizer(inputs, plugin)


def _held_by_o_lora(strategy: SupervisedTemplate) -> int:
    return bytes_of(plugin_of(strategy, OrthogonalLoRA).bases)


def _lora_bytes(room: Room, rank: int) -> float:
    sides = (sum(layer.get_parameter("weight").shape) for layer in _linears(room.model).values())
    return 4 * rank * sum(sides)


def _basis_bytes(room: Room, rank: int) -> float:
    inputs = (
        layer.get_parameter("weight").shape[0 if is_conv1d(layer) else 1]
        for layer in _linears(room.model).values()
    )
    return 4 * rank * sum(inputs)


_RANK = Setting("rank", 1, "Rank of the updates.", least=1)
_ALPHA = Setting("alpha", 2, "Updates are scaled by alpha / rank.", least=0)
_COMMON = (_RANK, _ALPHA, OPTIMIZER, learning_rate(2e-3))
_SOURCE = "Hu et al., 2022, https://arxiv.org/abs/2106.09685; LoRA by peft"

ROWS = (
    StrategyRow(
        "lora",
        "isolation",
        f"{_SOURCE}, one a task",
        "its own",
        "head",
        _lora,
        OWN_VALUES,
        settings=_COMMON,
        grid=RATES,
        holds=held_values,
        refuses=BY_LABEL,
        adds="its head and a LoRA",
        size=Size(_lora_bytes, "rank"),
        needs="peft",
    ),
    StrategyRow(
        "sequential_lora",
        "lower bound",
        f"{_SOURCE}, one for all tasks, one after the other",
        "everything",
        "head",
        _sequential_lora,
        settings=_COMMON,
        grid=RATES,
        needs="peft",
    ),
    StrategyRow(
        "o_lora",
        "penalty",
        "Wang et al., 2023, https://arxiv.org/abs/2310.14152; on peft's LoRA",
        "everything",
        "head",
        _o_lora,
        settings=(
            *_COMMON,
            Setting("orthogonality", 0.5, "Weight of the overlap with earlier tasks.", least=0),
        ),
        grid={**RATES, "orthogonality": (0.5, 5.0)},
        holds=_held_by_o_lora,
        adds="its head and the A of its LoRA",
        size=Size(_basis_bytes, "rank"),
        needs="peft",
    ),
)

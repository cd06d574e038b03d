"""LoRA and (IA)3 by peft; both start at the base."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.lab.baselines.own_values import (
    OwnValues,
    OwnValuesMethod,
    TrainOnly,
    count_kept,
    optimizer_setting,
    rate_setting,
    times_setting,
    train_own_values,
)
from cl_graft.localization.modules import find_feed_forward
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.runtime.seeding import derive, seeded
from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.task_heads import unwrap_model
from cl_graft.training.coordinate_gradient import count_features, is_conv1d

LORA_PAPER = "Hu et al., 2022, https://arxiv.org/abs/2106.09685; LoRA by peft"


def rank_setting(*, is_size: bool = True) -> Any:
    """Return the setting of the rank."""
    return setting(1, "Rank of the updates.", min_value=1, is_size=is_size)


def variant_setting(*variants: str) -> Any:
    """Return the setting of the variant."""
    return setting("lora", "Form; rslora is scaled by alpha / √rank.", choices=variants)


@dataclass(frozen=True, kw_only=True)
class LoRASettings:
    """Settings of all methods with LoRAs."""

    rank: int = rank_setting()
    alpha: int = setting(2, "Updates are scaled by alpha / rank.", min_value=0)
    layers: str = setting(
        "all",
        "Linear layers with a LoRA: all, those of feed-forward parts, the others, or those that "
        "peft lists for the type of the model.",
        choices=("all", "mlp", "attention", "usual"),
    )
    variant: str = variant_setting("lora", "dora", "rslora")
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(2e-3, grid=(1e-3, 2e-3, 4e-3, 8e-3))
    times_steps: float = times_setting()

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse a model without such layers, and a rank that none of them can have."""
        most = self.largest_size(shape)
        if self.rank > most:
            raise InputError(
                f"a LoRA of rank {self.rank:,} asked for; no layer of {shape.model.name!r} can "
                f"have more than {most:,}, the smaller side of its matrix"
            )

    def largest_size(self, shape: StreamShape) -> int:
        """Return the largest rank that a layer can have."""
        layers = find_linear_layers(shape.model, self.layers).values()
        return max(min(count_features(layer)) for layer in layers)


def add_lora_(model: TaskModel, settings: LoRASettings, *, seed: int) -> None:
    """Put LoRAs in float32 beside graftable linear layers of a model, and freeze the rest."""
    from peft import LoraConfig, inject_adapter_in_model

    layers = find_linear_layers(model, settings.layers)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=[name.removeprefix("backbone.") for name in layers],
        fan_in_fan_out=any(is_conv1d(module) for module in model.modules()),  # pyright: ignore[reportCallIssue]
        use_dora=settings.variant == "dora",
        use_rslora=settings.variant == "rslora",
    )
    with seeded(seed, "lora"):
        inject_adapter_in_model(config, model.backbone)
    _widen_(model, find_lora)


def _widen_(model: TaskModel, find: Callable[[nn.Module], dict[str, nn.Parameter]]) -> None:
    """Freeze a model, and let what peft put into it compute in float32, as peft's own models do."""
    model.requires_grad_(False)
    for parameter in find(model).values():
        parameter.data = parameter.data.float()


def find_lora(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the A and B of a model by their full names."""
    return {name: p for name, p in model.named_parameters() if ".lora_" in name}


def find_linear_layers(model: TaskModel, layers: str = "all") -> dict[str, nn.Module]:
    """Return graftable linear layers by their paths; `"usual"` are all where peft lists none."""
    parameters = set(graftable_parameters(model))
    linear: dict[str, nn.Module] = {
        name: module
        for name, module in model.named_modules()
        if (isinstance(module, nn.Linear) or is_conv1d(module)) and f"{name}.weight" in parameters
    }
    if not linear:
        raise InputError(f"a LoRA needs linear layers in the blocks; {model.name!r} has none")
    if layers == "all":
        return linear
    if layers in ("mlp", "attention"):
        inner = {name for part in find_feed_forward(model) for name in part.axes}
        if not inner:
            raise InputError(
                f"a LoRA of layers {layers!r} needs blocks with a feed-forward part, and none was "
                f"found in {model.name!r}: choose 'all'"
            )
        return {n: m for n, m in linear.items() if (f"{n}.weight" in inner) == (layers == "mlp")}
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as USUAL

    ends = tuple(f".{end}" for end in USUAL.get(model.text_config.model_type) or ())
    return {name: module for name, module in linear.items() if name.endswith(ends)} or linear


def find_lora_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield path and module of the linear layers with a LoRA."""
    from peft.tuners.lora import LoraLayer

    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            yield name, module


@register_strategy(
    "lora",
    family="isolation",
    source=f"{LORA_PAPER}, one a task",
    trains="per_task",
    adds="its head and a LoRA",
    unsupported=PICKED_BY_LABEL,
    requires="peft",
)
class LoRA(LoRASettings, OwnValuesMethod):
    """Give every task a LoRA of its own on the base."""

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the LoRA, which is put into the model."""
        add_lora_(inputs.model.task_model, self, seed=inputs.seed)
        return train_own_values(inputs, OwnValues(find_lora), optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of A and B of all layers, and of the magnitudes of DoRA."""
        sides = [*map(count_features, find_linear_layers(shape.model, self.layers).values())]
        magnitudes = sum(outputs for _, outputs in sides) if self.variant == "dora" else 0
        return count_kept(shape.model, self.rank * sum(map(sum, sides)) + magnitudes)


@register_strategy(
    "sequential_lora",
    family="lower bound",
    source=f"{LORA_PAPER}, one for all tasks, one after the other",
    requires="peft",
)
class SequentialLoRA(LoRASettings):
    """Train one LoRA on one task after the other, with nothing against forgetting."""

    rank: int = rank_setting(is_size=False)
    lr: float = rate_setting(2e-3, grid=(2.5e-4, 5e-4, 1e-3, 2e-3))  # a higher one forgets more

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `TrainOnly` of the LoRA, which is put into the model."""
        add_lora_(inputs.model.task_model, self, seed=inputs.seed)
        return train_own_values(inputs, TrainOnly(find_lora), optimizer=self.optimizer)


class OrthogonalLoRA(TrainOnly, supports_distributed=False):
    """Give every task a LoRA whose A is pushed to be orthogonal to those of earlier tasks.

    O-LoRA (Wang et al., 2023, https://arxiv.org/abs/2310.14152): the loss gets ``weight · Σ |A_i
    Aᵀ|`` over earlier tasks i and layers. A finished LoRA is merged into the weights, and only its
    A is kept, so earlier answers change as far as the subspaces are not orthogonal.

    Runs at: before_training_exp, before_backward, after_training_exp.
    """

    def __init__(self, *, weight: float, seed: int) -> None:
        super().__init__(find_lora)
        self.weight = weight
        self.seed = seed
        self.bases: dict[str, list[Tensor]] = {}

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Start a new LoRA at zero."""
        super().before_training_exp(strategy, **kwargs)
        label = int(strategy.experience.task_label)
        with seeded(derive(self.seed, label), "o_lora"):
            for _, layer in find_lora_layers(unwrap_model(strategy.model)):
                layer.reset_lora_parameters("default", True)

    def before_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Add the penalty."""
        if not self.bases:
            return
        overlap = torch.zeros((), device=strategy.device)
        for name, layer in find_lora_layers(unwrap_model(strategy.model)):
            now = layer.lora_A["default"].weight
            overlap = overlap + sum((now @ then.T).abs().sum() for then in self.bases[name])
        strategy.loss = strategy.loss + self.weight * overlap

    @torch.no_grad()
    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Add the LoRA to the weights, and keep its A."""
        for name, layer in find_lora_layers(unwrap_model(strategy.model)):
            now = layer.lora_A["default"].weight
            self.bases.setdefault(name, []).append(now.detach().clone())
            layer.get_base_layer().weight += layer.get_delta_weight("default")
            layer.lora_B["default"].weight.zero_()


@register_strategy(
    "o_lora",
    family="penalty",
    source="Wang et al., 2023, https://arxiv.org/abs/2310.14152; on peft's LoRA",
    adds="its head and the A of its LoRA",
    requires="peft",
)
class OLoRA(LoRASettings):
    """Learn every task in a low-rank subspace, nearly orthogonal to those of earlier tasks."""

    variant: str = variant_setting("lora", "rslora")
    orthogonality: float = setting(
        0.5, "Weight of the overlap with earlier tasks.", min_value=0, grid=(0.5, 5.0)
    )

    storage_bytes = count_stored(OrthogonalLoRA, "bases")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OrthogonalLoRA`, on a model with a LoRA."""
        add_lora_(inputs.model.task_model, self, seed=inputs.seed)
        plugin = OrthogonalLoRA(weight=self.orthogonality, seed=inputs.seed)
        return train_own_values(inputs, plugin, optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of A of all layers."""
        sides = map(count_features, find_linear_layers(shape.model, self.layers).values())
        return 4 * self.rank * sum(inputs for inputs, _ in sides)


def add_ia3_(model: TaskModel) -> None:
    """Put the vectors beside linear layers of a model, where peft puts them; freeze the rest."""
    from peft import IA3Config, inject_adapter_in_model

    places = {name.removeprefix("backbone."): inner for name, inner in _find_places(model).items()}
    config = IA3Config(
        target_modules=list(places),
        feedforward_modules=[name for name, inner in places.items() if inner],
        fan_in_fan_out=any(is_conv1d(module) for module in model.modules()),
    )
    inject_adapter_in_model(config, model.backbone)
    _widen_(model, find_ia3)


def find_ia3(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the vectors of a model by their full names."""
    return {name: p for name, p in model.named_parameters() if ".ia3_l." in name}


def _find_places(model: TaskModel) -> dict[str, bool]:
    """Return paths of the scaled layers, and whether a layer's inputs are scaled."""
    from peft.utils import TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING as INNER
    from peft.utils import TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING as SCALED

    kind = model.text_config.model_type
    scaled, inner = (tuple(f".{end}" for end in ends.get(kind, ())) for ends in (SCALED, INNER))
    places = {
        name: name.endswith(inner) for name in find_linear_layers(model) if name.endswith(scaled)
    }
    if not places:
        raise InputError(
            f"strategy 'ia3' scales layers that peft lists by a model's type, and it lists none "
            f"for {kind!r}: choose strategy 'lora', which takes any model, or a model of one of "
            f"the types {', '.join(sorted(SCALED, key=str.lower))}"
        )
    return places


@register_strategy(
    "ia3",
    family="isolation",
    source="Liu et al., 2022, https://arxiv.org/abs/2205.05638; (IA)3 by peft, one a task",
    trains="per_task",
    adds="its head and a vector a scaled layer",
    unsupported=PICKED_BY_LABEL,
    requires="peft",
)
class IA3(OwnValuesMethod):
    """Give every task vectors that scale keys, values and inner activations, as peft puts them."""

    lr: float = rate_setting(8e-3, grid=(5e-4, 2e-3, 8e-3, 3e-2))

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the vectors, which are put into the model."""
        add_ia3_(inputs.model.task_model)
        return train_own_values(inputs, OwnValues(find_ia3), optimizer=self.optimizer)

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse a model of a type that peft does not list."""
        _find_places(shape.model)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the vectors of all layers."""
        # Inputs are scaled in inner layers, outputs in others.
        numbers = (
            count_features(shape.model.get_submodule(name))[0 if inner else 1]
            for name, inner in _find_places(shape.model).items()
        )
        return count_kept(shape.model, sum(numbers))

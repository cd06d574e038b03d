"""(IA)3: vectors for each task that scale activations of the blocks.

They start at ones, so every task starts at the base.
"""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate
from torch import nn

from cl_graft.errors import InputError
from cl_graft.lab.baselines.lora import find_linear_layers
from cl_graft.lab.baselines.own_values import (
    OwnValues,
    OwnValuesMethod,
    optimizer_setting,
    rate_setting,
    train_own_values,
)
from cl_graft.models import TaskModel
from cl_graft.strategies import StrategyInputs, register_strategy
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.training.linear_layers import is_conv1d


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
    model.requires_grad_(False)


def find_ia3(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the vectors of a model by their full names."""
    return {name: p for name, p in model.named_parameters() if ".ia3_l." in name}


def _find_places(model: TaskModel) -> dict[str, bool]:
    """Return paths of the scaled layers, and whether a layer's inputs are scaled, not its outputs.

    The inner activations of a feed-forward part are inputs of its last layer.
    """
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
    """Give every task vectors of its own that scale keys, values and inner activations.

    They stand at the layers that peft lists for (IA)3 by the model's type.
    """

    optimizer: str = optimizer_setting()
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
        return 4 * sum(
            _count_scaled(shape.model.get_submodule(name), inner)
            for name, inner in _find_places(shape.model).items()
        )


def _count_scaled(layer: nn.Module, inner: bool) -> int:
    """Return the number of a linear layer's inputs, where these are scaled, or of its outputs."""
    sides = layer.get_parameter("weight").shape
    outputs, inputs = reversed(sides) if is_conv1d(layer) else sides
    return inputs if inner else outputs

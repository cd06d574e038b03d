"""OwnValues: a few parameters have values of their own for every task; all others stay frozen.

No value that answers an earlier task ever changes, so backward transfer is exactly 0, and a task
does not depend on those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.graft import load_, snapshot
from cl_graft.lab.baselines.bounds import ValuesByTask, times_setting
from cl_graft.models import TaskModel, block_stacks, graftable_parameters, longest_row
from cl_graft.runtime.checkpoints import join_tensors, select_tensors
from cl_graft.runtime.seeding import generator
from cl_graft.strategies import (
    StrategyInputs,
    count_bytes,
    count_stored,
    find_plugin,
    register_strategy,
    setting,
)
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.task_heads import find_heads, unwrap_model

Choose = Callable[[nn.Module], Mapping[str, nn.Parameter]]
"""Takes a `TaskModel`; returns parameters of it by their full names."""


class TrainOnly(SupervisedPlugin, supports_distributed=False):
    """Train some parameters and the head of the task at hand; freeze all others.

    Runs at: before_training_exp. The optimiser starts with an empty state in every experience.
    """

    def __init__(self, choose: Choose) -> None:
        super().__init__()
        self.choose = choose

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Freeze all others."""
        strategy.optimizer.state.clear()
        model = unwrap_model(strategy.model)
        freeze_except_(model, self.choose(model), label=int(strategy.experience.task_label))


class OwnValues(ValuesByTask, TrainOnly, supports_distributed=False):
    """Give every task values of its own in some parameters, from the same first values.

    They are kept in the base's type, as the values of a graft are.

    Runs at: before_training_exp, after_training_exp, before_eval_exp, after_eval_exp.
    """

    def __init__(self, choose: Choose) -> None:
        super().__init__(choose)
        self._start: dict[str, Tensor] | None = None

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Start the task's values."""
        self._restore(strategy)
        super().before_training_exp(strategy, **kwargs)
        live = self._live_values(strategy)
        if self._start is None:
            self._start = snapshot(live)
        load_(unwrap_model(strategy.model), self._start)

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep the task's values, and put the starting ones back."""
        label, model = int(strategy.experience.task_label), unwrap_model(strategy.model)
        dtype, live = _base_type(model), snapshot(self._live_values(strategy))
        self.values[label] = {name: value.to("cpu", dtype) for name, value in live.items()}
        load_(model, self._start or {})

    def _live_values(self, strategy: Strategy) -> dict[str, nn.Parameter]:
        return dict(self.choose(unwrap_model(strategy.model)))


def _base_type(model: nn.Module) -> torch.dtype:
    return next(iter(graftable_parameters(model).values())).dtype


def count_kept(model: nn.Module, numbers: int) -> int:
    """Return the bytes of as many values of a task's own in the base's type."""
    return numbers * _base_type(model).itemsize


def freeze_except_(model: nn.Module, trained: Mapping[str, nn.Parameter], *, label: int) -> None:
    """Let some parameters and one task's head require gradients, and nothing else."""
    model.requires_grad_(False)
    for parameter in trained.values():
        parameter.requires_grad_(True)
    for head in find_heads(model, label):
        head.module.requires_grad_(True)


def optimizer_setting() -> Any:
    """Return the setting of the optimiser."""
    return setting("adamw", "Optimiser of a task's own values.", choices=("adamw", "sgd"))


RATES = (1e-4, 5e-4, 2e-3, 8e-3)
"""Learning rates among which tuning chooses, for small modules that start at zero."""


def rate_setting(default: float, grid: tuple[float, ...] = RATES) -> Any:
    """Return the setting of the learning rate, in place of the config's."""
    return setting(default, "Learning rate, in place of the config's.", min_value=1e-12, grid=grid)


@dataclass(frozen=True, kw_only=True)
class OwnValuesMethod:
    """The part of methods that give every task values of its own in some parameters."""

    optimizer: str = optimizer_setting()
    times_steps: float = times_setting()

    storage_bytes = count_stored(OwnValues, "values")

    @staticmethod
    def state(strategy: SupervisedTemplate) -> dict[str, Tensor]:
        """Return all tasks' values and heads."""
        values = find_plugin(strategy, OwnValues).values
        model = unwrap_model(strategy.model)
        heads = {name: p.detach() for name, p in model.named_parameters() if "heads." in name}
        return join_tensors(heads=heads, **{str(label): held for label, held in values.items()})

    @staticmethod
    def load_state_(
        strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Give a new strategy the values and heads of earlier tasks."""
        plugin = find_plugin(strategy, OwnValues)
        model = unwrap_model(strategy.model)
        plugin._start = snapshot(dict(plugin.choose(model)))
        load_(model, select_tensors(tensors, "heads"))
        for experience in experiences:
            label = int(experience.task_label)
            plugin.values[label] = select_tensors(tensors, str(label))


def train_own_values(
    inputs: StrategyInputs, plugin: SupervisedPlugin, *, optimizer: str
) -> SupervisedTemplate:
    """Return Naive with a plugin that picks what trains, and without weight decay."""
    template = inputs.template_arguments(optimizer=optimizer)
    return Naive(**template, plugins=inputs.loop_plugins(plugin, trains=True))


def find_biases(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the biases of a model's blocks, those of LayerNorms among them."""
    chosen = graftable_parameters(model)
    biases = {name: p for name, p in chosen.items() if name.rpartition(".")[2] == "bias"}
    if not biases:
        raise InputError("strategy 'bitfit' trains biases, and this model has none")
    return biases


@register_strategy(
    "bitfit",
    family="isolation",
    source="Ben Zaken et al., 2022, https://arxiv.org/abs/2106.10199; biases of its own for each "
    "task",
    trains="per_task",
    adds="its head and all biases",
    unsupported=PICKED_BY_LABEL,
)
class BitFit(OwnValuesMethod):
    """Give every task its own values of the biases; they start at those of the base."""

    lr: float = rate_setting(2e-3)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the biases."""
        return train_own_values(inputs, OwnValues(find_biases), optimizer=self.optimizer)

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse a model without biases, and biases that AdamW cannot train."""
        biases = find_biases(shape.model)
        if self.optimizer == "adamw" and torch.float16 in {p.dtype for p in biases.values()}:
            raise InputError("bitfit by AdamW divides by 0 in float16: take bfloat16 or float32")

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the biases."""
        return count_bytes(find_biases(shape.model))


_ADAPTER = "own_adapter"


class Bottleneck(nn.Module):
    """Add ``up(gelu(down(x)))`` to a block's states; zero at first."""

    def __init__(self, hidden: int, size: int, *, draws: torch.Generator) -> None:
        super().__init__()
        self.down = nn.utils.skip_init(nn.Linear, hidden, size)
        self.up = nn.utils.skip_init(nn.Linear, size, hidden)
        nn.init.normal_(cast(Tensor, self.down.weight), 0.0, 0.02, generator=draws)
        for rest in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(cast(Tensor, rest))

    def forward(self, states: Tensor) -> Tensor:
        """Return states of the same shape."""
        inputs = states.to(cast(Tensor, self.down.weight).dtype)  # the base may have 16 bits
        return states + self.up(nn.functional.gelu(self.down(inputs))).to(states.dtype)


def add_adapters_(model: TaskModel, *, size: int, seed: int) -> None:
    """Put a bottleneck behind every block of a model, in place."""
    draws = generator(seed, "adapters")
    for path in block_stacks(model):
        for block in cast(nn.ModuleList, model.get_submodule(path)):
            add_adapter_(block, Bottleneck(model.hidden_size, size, draws=draws).to(model.device))


def add_adapter_(module: nn.Module, adapter: Bottleneck) -> None:
    """Pass the states that a module returns through an adapter, a part of the module."""
    module.add_module(_ADAPTER, adapter)
    module.register_forward_hook(_pass_through)


def find_adapters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a model's adapters by their full names."""
    return {name: p for name, p in model.named_parameters() if f".{_ADAPTER}." in name}


def _pass_through(block: nn.Module, inputs: Any, output: Any) -> Any:
    """Pass a block's states through its adapter; a block may return more beside them."""
    adapter = block.get_submodule(_ADAPTER)
    if isinstance(output, tuple):
        return (adapter(output[0]), *output[1:])
    return adapter(output)


@register_strategy(
    "adapters",
    family="isolation",
    source="Houlsby et al., 2019, https://arxiv.org/abs/1902.00751; one behind each block as "
    "Pfeiffer et al., 2021",
    trains="per_task",
    adds="its head and an adapter a block",
    unsupported=PICKED_BY_LABEL,
)
class Adapters(OwnValuesMethod):
    """Give every task bottleneck adapters of its own, one behind each block."""

    size: int = setting(4, "Size of the bottlenecks.", min_value=1, is_size=True)
    lr: float = rate_setting(2e-3)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the adapters, which are put into the model."""
        add_adapters_(inputs.model.task_model, size=self.size, seed=inputs.seed)
        return train_own_values(inputs, OwnValues(find_adapters), optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the adapters of all blocks."""
        model = shape.model
        stacks = (cast(nn.ModuleList, model.get_submodule(path)) for path in block_stacks(model))
        numbers = 2 * model.hidden_size * self.size + self.size + model.hidden_size
        return count_kept(model, sum(map(len, stacks)) * numbers)


_PROMPT = "own_prompt"


def add_prompt_(model: TaskModel, *, tokens: int, seed: int) -> None:
    """Put trained vectors before the word embeddings of every text, in place."""
    backbone = cast(Any, model.backbone)
    words = _words(model)
    picked = torch.randint(len(words), (tokens,), generator=generator(seed, "prompt"))
    start = words[picked.to(words.device)].to(torch.float32, copy=True)
    backbone.register_parameter(_PROMPT, nn.Parameter(start))
    backbone.register_forward_pre_hook(_prepend_prompt, with_kwargs=True)
    backbone.register_forward_hook(_drop_prompt, with_kwargs=False)


def find_prompt(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the prompt of a model by its full name."""
    return {name: p for name, p in model.named_parameters() if _PROMPT in name}


def _prepend_prompt(
    backbone: Any, inputs: Any, named: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Replace the token ids by their embeddings with the prompt in front."""
    named = dict(named)
    words = backbone.get_input_embeddings()(named.pop("input_ids"))
    prompt = backbone.get_parameter(_PROMPT).expand(len(words), -1, -1)
    named["inputs_embeds"] = torch.cat([prompt.to(words.dtype), words], dim=1)
    for name, value in (("attention_mask", 1), ("token_type_ids", 0)):
        if name in named:
            more = named[name].new_full(prompt.shape[:2], value)
            named[name] = torch.cat([more, named[name]], dim=1)
    return inputs, named


def _drop_prompt(backbone: Any, inputs: Any, output: Any) -> Any:
    count = len(backbone.get_parameter(_PROMPT))
    output.last_hidden_state = output.last_hidden_state[:, count:]
    return output


def _words(model: TaskModel) -> Tensor:
    return cast(Any, model.backbone).get_input_embeddings().weight.detach()


@register_strategy(
    "prompt_tuning",
    family="isolation",
    source="Lester et al., 2021, https://arxiv.org/abs/2104.08691; one soft prompt a task",
    trains="per_task",
    adds="its head and the prompt",
    unsupported=PICKED_BY_LABEL,
    encoders_only=True,
)
class PromptTuning(OwnValuesMethod):
    """Give every task a soft prompt of its own."""

    tokens: int = setting(10, "Trained vectors before the text.", min_value=1, is_size=True)
    lr: float = rate_setting(1e-2, grid=(3e-3, 1e-2, 3e-2))

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the prompt, which is put into the model."""
        add_prompt_(inputs.model.task_model, tokens=self.tokens, seed=inputs.seed)
        return train_own_values(inputs, OwnValues(find_prompt), optimizer=self.optimizer)

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse texts that no longer fit into the model."""
        longest = longest_row(shape.model)
        if longest is not None and shape.length + self.tokens > longest:
            raise InputError(
                f"prompt_tuning puts {self.tokens} vectors before texts of up to {shape.length} "
                f"tokens, but the model takes {longest}: lower max_length or "
                "comparison.strategy_settings.prompt_tuning.tokens"
            )

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the prompt."""
        return self.tokens * count_bytes(_words(shape.model)[0])

    def largest_size(self, shape: StreamShape) -> int:
        """Return the most vectors that the model takes before texts of the full length."""
        return max(1, (longest_row(shape.model) or 2**20) - shape.length)

"""Prompt tuning: a few trained vectors for each task, before the token embeddings of every text.

They start at the embeddings of tokens drawn from the vocabulary.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.lab.baselines.own_values import (
    OwnValues,
    OwnValuesMethod,
    optimizer_setting,
    rate_setting,
    train_own_values,
)
from cl_graft.models import TaskModel, longest_row
from cl_graft.runtime.seeding import generator
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape, setting
from cl_graft.strategies.registry import register_strategy
from cl_graft.strategies.stored_bytes import count_bytes
from cl_graft.strategies.strategy_inputs import StrategyInputs

_PROMPT = "own_prompt"


def add_prompt_(model: TaskModel, *, tokens: int, seed: int) -> None:
    """Put trained vectors before the word embeddings of every text, in place.

    Their states are taken out again behind the last block (Lester et al., 2021,
    https://arxiv.org/abs/2104.08691).
    """
    backbone = cast(Any, model.backbone)
    words = _words(model)
    picked = torch.randint(len(words), (tokens,), generator=generator(seed, "prompt"))
    backbone.register_parameter(_PROMPT, nn.Parameter(words[picked.to(words.device)].clone()))
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
    """Drop the states of the prompt."""
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
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(1e-2, grid=(3e-3, 1e-2, 3e-2))

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the prompt, which is put into the model."""
        model = inputs.model.task_model
        self._refuse_long(model, inputs.stream.tasks[0].splits["train"][0].shape[-1])
        add_prompt_(model, tokens=self.tokens, seed=inputs.seed)
        return train_own_values(inputs, OwnValues(find_prompt), optimizer=self.optimizer)

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse texts that no longer fit into the model."""
        self._refuse_long(shape.model, shape.length)

    def _refuse_long(self, model: TaskModel, length: int) -> None:
        longest = longest_row(model)
        if longest is not None and length + self.tokens > longest:
            raise InputError(
                f"prompt_tuning puts {self.tokens} vectors before texts of up to {length} tokens, "
                f"but the model takes {longest}: lower max_length or "
                "comparison.strategy_settings.prompt_tuning.tokens"
            )

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the prompt."""
        return self.tokens * count_bytes(_words(shape.model)[0])

    def largest_size(self, shape: StreamShape) -> int:
        """Return the most vectors that the model takes before texts of the full length."""
        return max(1, (longest_row(shape.model) or 2**20) - shape.length)

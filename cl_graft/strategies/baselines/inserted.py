"""Parts of a task's own inside a frozen encoder: its biases, bottleneck adapters, soft prompts.

All start every task at the base: biases at its own, adapters at zero. Prompts start at the
embeddings of tokens drawn from the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.models import TaskModel, block_stacks, graftable_parameters
from cl_graft.runtime.seeding import generator
from cl_graft.strategies.baselines.own_values import (
    OPTIMIZER,
    OWN_VALUES,
    RATES,
    OwnValues,
    held_values,
    learning_rate,
    with_own_optimizer,
)
from cl_graft.strategies.baselines.stored_bytes import bytes_of
from cl_graft.strategies.method_settings import Setting
from cl_graft.strategies.method_size import Room, Size
from cl_graft.strategies.registered import BY_LABEL, StrategyRow
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = [
    "ROWS",
    "Bottleneck",
    "adapter_parameters",
    "add_adapters_",
    "add_prompt_",
    "add_two_adapters_",
    "biases",
]

_ADAPTER, _PROMPT = "own_adapter", "own_prompt"

_LAST_LAYERS = (
    ("attention.output.dense", "output.dense"),
    ("attention.out_lin", "ffn.lin2"),
    ("attn.c_proj", "mlp.c_proj"),
    ("self_attn.out_proj", "fc2"),
    ("self_attn.o_proj", "mlp.down_proj"),
)
"""The last layers of the two halves of a block, before what went in is added: of BERT and RoBERTa,
DistilBERT, GPT-2, OPT and BART, Llama."""


class Bottleneck(nn.Module):
    """Add ``up(gelu(down(x)))`` to a block's states; zero at first.

    Args:
        hidden: Size of the states.
        size: Of the bottleneck.
        draws: Draws the weights of `down` from N(0, 0.02²).
    """

    def __init__(self, hidden: int, size: int, *, draws: torch.Generator) -> None:
        super().__init__()
        self.down = nn.utils.skip_init(nn.Linear, hidden, size)
        self.up = nn.utils.skip_init(nn.Linear, size, hidden)
        nn.init.normal_(cast(Tensor, self.down.weight), 0.0, 0.02, generator=draws)
        for rest in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(cast(Tensor, rest))

    def forward(self, states: Tensor) -> Tensor:
        """Return states of the same shape."""
        return states + self.up(nn.functional.gelu(self.down(states)))


def biases(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the biases of a model's blocks, those of LayerNorms among them.

    Raises:
        InputError: If there are none.
    """
    chosen = graftable_parameters(model)
    found = {name: p for name, p in chosen.items() if name.rpartition(".")[2] == "bias"}
    if not found:
        raise InputError("bitfit trains biases, and this model has none")
    return found


def add_adapters_(model: TaskModel, *, size: int, seed: int) -> None:
    """Put a bottleneck behind every block of a model, in place.

    One behind each block, as Pfeiffer et al. found enough (https://arxiv.org/abs/2005.00247).

    Args:
        model: The model.
        size: Of the bottleneck.
        seed: Draws first values.
    """
    draws = generator(seed, "adapters")
    for path in block_stacks(model):
        for block in cast(nn.ModuleList, model.get_submodule(path)):
            adapter = Bottleneck(model.hidden_size, size, draws=draws)
            block.add_module(_ADAPTER, adapter.to(model.device))
            block.register_forward_hook(_behind)


def add_two_adapters_(model: TaskModel, *, size: int, seed: int) -> None:
    """Put a bottleneck behind both halves of every block of a model, in place.

    Behind the last layer of the attention and of the feed-forward part, before what went in is
    added, as in Houlsby et al., 2019 (https://arxiv.org/abs/1902.00751).

    Args:
        model: The model.
        size: Of the bottlenecks.
        seed: Draws first values.

    Raises:
        InputError: If the halves of its blocks have names that are not known here.
    """
    draws = generator(seed, "adapters")
    for path in block_stacks(model):
        for block in cast(nn.ModuleList, model.get_submodule(path)):
            inside = dict(block.named_modules())
            ends = next((ends for ends in _LAST_LAYERS if all(end in inside for end in ends)), None)
            if ends is None:
                raise InputError(
                    f"adapters inside blocks need halves that end in one of {_LAST_LAYERS}, and "
                    f"{type(block).__name__} has none of these; put adapters behind blocks"
                )
            for end in ends:
                adapter = Bottleneck(model.hidden_size, size, draws=draws)
                inside[end].add_module(_ADAPTER, adapter.to(model.device))
                inside[end].register_forward_hook(_behind)


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a model's adapters by their full names."""
    return _named([f".{_ADAPTER}."])(model)


def add_prompt_(model: TaskModel, *, tokens: int, seed: int) -> None:
    """Put trained vectors before the word embeddings of every text, in place.

    Their states are taken out again behind the last block (Lester et al., 2021,
    https://arxiv.org/abs/2104.08691).

    Args:
        model: An encoder.
        tokens: Number of vectors.
        seed: Draws the tokens whose embeddings they start from.

    Raises:
        InputError: If texts of the model's full length would no longer fit; it has a limit then.
    """
    backbone = cast(Any, model.backbone)
    words = _words(model)
    picked = torch.randint(len(words), (tokens,), generator=generator(seed, "prompt"))
    backbone.register_parameter(_PROMPT, nn.Parameter(words[picked.to(words.device)].clone()))
    backbone.register_forward_pre_hook(_before, with_kwargs=True)
    backbone.register_forward_hook(_without, with_kwargs=False)


def _behind(block: nn.Module, inputs: Any, output: Any) -> Any:
    """Pass a block's states through its adapter; a block may return more beside them."""
    adapter = block.get_submodule(_ADAPTER)
    if isinstance(output, tuple):
        return (adapter(output[0]), *output[1:])
    return adapter(output)


def _before(backbone: Any, inputs: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Give a backbone embeddings with the prompt in front, in place of token ids."""
    named = dict(named)
    words = backbone.get_input_embeddings()(named.pop("input_ids"))
    prompt = backbone.get_parameter(_PROMPT).expand(len(words), -1, -1)
    named["inputs_embeds"] = torch.cat([prompt.to(words.dtype), words], dim=1)
    for name, value in (("attention_mask", 1), ("token_type_ids", 0)):
        if name in named:
            more = named[name].new_full(prompt.shape[:2], value)
            named[name] = torch.cat([more, named[name]], dim=1)
    return inputs, named


def _without(backbone: Any, inputs: Any, output: Any) -> Any:
    """Take the prompt's states out."""
    count = len(backbone.get_parameter(_PROMPT))
    output.last_hidden_state = output.last_hidden_state[:, count:]
    return output


def _words(model: TaskModel) -> Tensor:
    return cast(Any, model.backbone).get_input_embeddings().weight.detach()


def _positions(model: TaskModel) -> int | None:
    return getattr(model.backbone.config, "max_position_embeddings", None)


def _named(parts: Sequence[str]) -> Any:
    def choose(model: nn.Module) -> dict[str, nn.Parameter]:
        return {n: p for n, p in model.named_parameters() if any(part in n for part in parts)}

    return choose


def _bitfit(inputs: StrategyInputs) -> SupervisedTemplate:
    return with_own_optimizer(inputs, OwnValues(biases))


def _adapters(inputs: StrategyInputs) -> SupervisedTemplate:
    add_adapters_(inputs.model.task_model, size=inputs.settings["size"], seed=inputs.seed)
    return with_own_optimizer(inputs, OwnValues(adapter_parameters))


def _prompt(inputs: StrategyInputs) -> SupervisedTemplate:
    model, tokens = inputs.model.task_model, inputs.settings["tokens"]
    longest = _positions(model)
    length = inputs.stream.tasks[0].splits["train"][0].shape[-1]
    if longest is not None and length + tokens > longest:
        raise InputError(
            f"prompt_tuning puts {tokens} vectors before texts of up to {length} tokens, but the "
            f"model takes {longest}: lower max_length or strategy_settings.prompt_tuning.tokens"
        )
    add_prompt_(model, tokens=tokens, seed=inputs.seed)
    return with_own_optimizer(inputs, OwnValues(_named([_PROMPT])))


def _bias_bytes(room: Room, value: int) -> float:
    return bytes_of(biases(room.model))


def _adapter_bytes(room: Room, size: int) -> float:
    model = room.model
    blocks = sum(len(cast(nn.ModuleList, model.get_submodule(p))) for p in block_stacks(model))
    return 4 * blocks * (2 * model.hidden_size * size + size + model.hidden_size)


def _prompt_bytes(room: Room, tokens: int) -> float:
    return tokens * bytes_of(_words(room.model)[0])


def _most_tokens(room: Room) -> int:
    return max(1, (_positions(room.model) or 2**20) - room.length)


ROWS = (
    StrategyRow(
        "bitfit",
        "isolation",
        "Ben Zaken et al., 2022, https://arxiv.org/abs/2106.10199; biases of its own for each task",
        "its own",
        "head",
        _bitfit,
        OWN_VALUES,
        settings=(OPTIMIZER, learning_rate(2e-3)),
        grid=RATES,
        holds=held_values,
        refuses=BY_LABEL,
        adds="its head and all biases",
        size=Size(_bias_bytes),
    ),
    StrategyRow(
        "adapters",
        "isolation",
        "Houlsby et al., 2019, https://arxiv.org/abs/1902.00751; one behind each block as "
        "Pfeiffer et al., 2021",
        "its own",
        "head",
        _adapters,
        OWN_VALUES,
        settings=(
            Setting("size", 4, "Of the bottlenecks.", least=1),
            OPTIMIZER,
            learning_rate(2e-3),
        ),
        grid=RATES,
        holds=held_values,
        refuses=BY_LABEL,
        adds="its head and an adapter a block",
        size=Size(_adapter_bytes, "size"),
    ),
    StrategyRow(
        "prompt_tuning",
        "isolation",
        "Lester et al., 2021, https://arxiv.org/abs/2104.08691; one soft prompt a task",
        "its own",
        "head",
        _prompt,
        OWN_VALUES,
        settings=(
            Setting("tokens", 10, "Trained vectors before the text.", least=1),
            OPTIMIZER,
            learning_rate(1e-2),
        ),
        grid={"lr": (3e-3, 1e-2, 3e-2)},
        holds=held_values,
        refuses=BY_LABEL,
        adds="its head and the prompt",
        size=Size(_prompt_bytes, "tokens", _most_tokens),
        encoders_only=True,
    ),
)

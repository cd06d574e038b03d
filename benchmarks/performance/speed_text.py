"""Time and memory of models that write text: steps of a region, and decoding for several tasks.

Two models with random weights: GPT-2's shape, a decoder alone, and T5-base's, an encoder-decoder.
Each row is a prompt and its answer; the loss is that of the answer alone, and every variant
computes the logits of the answer's tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from speed_serving import Values, compute_ratios, make_bank
from speed_training import Shape, memory_ratio, step_ratios
from torch import Tensor, nn

from cl_graft.inference.task_switch import Switch
from cl_graft.models import TaskModel, TaskServer, graftable_parameters
from cl_graft.models.text_generation import ANSWER, TextHead

__all__ = ["TEXT_SHAPES", "TextShape", "decode_mixed_batches", "text_memory", "text_steps"]


@dataclass(frozen=True)
class TextShape(Shape):
    """A model that writes text, with random weights, and prompts with answers.

    Attributes:
        name: ``gpt2``, ``t5_base``, or a tiny one of the same architecture: ``tiny_gpt2`` and
            ``tiny_t5``.
        answer: Tokens of a row's answer; the others are its prompt.
    """

    name: str = "gpt2"
    answer: int = 8

    def model(self) -> nn.Module:
        """Return the model with a head for text, in eval mode; its blocks alone can be trained."""
        torch.manual_seed(0)
        family = "causal_lm" if "gpt2" in self.name else "seq2seq_lm"
        model = TaskModel(_make_backbone(self.name), family=family, name=self.name)
        model.add_head(0, TextHead([1], self.answer))
        return model.to(self.device).eval()

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return prompts with answers, (rows, 2, tokens), and the ids of the answers' tokens."""
        ids, _ = super().batch()
        segments = torch.ones_like(ids)
        segments[:, -self.answer :] = ANSWER
        return torch.stack([ids, segments], 1), ids[:, -self.answer :]

    def graftable(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Return the block parameters."""
        return graftable_parameters(model)

    def head(self, model: nn.Module) -> list[nn.Parameter]:
        """Return no parameters: the language-model head is frozen."""
        return []

    def compute_loss(self, model: nn.Module) -> Callable[[], Tensor]:
        """Return the function that computes the loss of the answers."""
        rows, answers = self.batch()

        def loss() -> Tensor:
            return nn.functional.cross_entropy(model(rows, 0).flatten(0, 1), answers.flatten())

        return loss


TEXT_SHAPES = (TextShape("gpt2"), TextShape("t5_base"))


def text_steps(shapes: tuple[TextShape, ...], *, threads: int, repeats: int) -> Values:
    """Time a step of a region against one that trains all blocks."""
    found: Values = {}
    for shape in shapes:
        ratios, first, second = step_ratios(
            "region_step", "full_step", shape, threads=threads, repeats=repeats
        )
        found[f"{shape.name}_region_step/full_step"] = ratios
        found[f"{shape.name}_region_step, seconds"] = first
        found[f"{shape.name}_full_step, seconds"] = second
    return found


def text_memory(shapes: tuple[TextShape, ...], *, threads: int, repeats: int) -> Values:
    """Measure the peak memory of a step of a region against one that trains all blocks."""
    found: Values = {}
    for shape in shapes:
        ratios, first, second = memory_ratio(
            "region_step", "full_step", shape, threads=threads, repeats=repeats
        )
        found[f"{shape.name}_region_memory/full_memory"] = ratios
        found[f"{shape.name}_region_memory, MB"] = [peak / 1e6 for peak in first]
        found[f"{shape.name}_full_memory, MB"] = [peak / 1e6 for peak in second]
    return found


def decode_mixed_batches(shapes: tuple[TextShape, ...], *, repeats: int, tasks: int = 8) -> Values:
    """Time the decoding of a batch of several tasks against one of a single task.

    The heads know no token that ends an answer, so that every row is decoded to its longest.
    """
    found: Values = {}
    for shape in shapes:
        model: Any = shape.model()
        never = TextHead([10**9], shape.answer).state_dict()
        bank = make_bank(shape, model, tasks, even=True, head=never)
        server = TaskServer(Switch(model, bank))
        prompts = replace(shape, tokens=shape.tokens - shape.answer)
        ids, _ = super(TextShape, prompts).batch()
        rows = torch.stack([ids, torch.ones_like(ids)], 1)
        owners = [row * tasks // shape.rows for row in range(shape.rows)]

        def answer(asked: list[int], server: Any = server, rows: Tensor = rows) -> list[Tensor]:
            return server.answer(rows, asked)

        ratios, first, second = compute_ratios(
            lambda answer=answer, owners=owners: answer(owners),
            lambda answer=answer, owners=owners: answer([tasks - 1] * len(owners)),
            repeats,
        )
        found[f"{shape.name}_decoding_{tasks}_tasks/one_task"] = ratios
        found[f"{shape.name}_decoding_{tasks}_tasks, ms"] = [1e3 * seconds for seconds in first]
        found[f"{shape.name}_decoding_one_task, ms"] = [1e3 * seconds for seconds in second]
    return found


def _make_backbone(name: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

    configs: dict[str, Any] = {
        "gpt2": GPT2Config(),
        "t5_base": T5Config(
            d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0
        ),
        "tiny_gpt2": GPT2Config(
            vocab_size=200, n_embd=48, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1
        ),
        "tiny_t5": T5Config(
            vocab_size=200,
            d_model=48,
            d_kv=12,
            d_ff=96,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        ),
    }
    config = configs[name]
    return (GPT2LMHeadModel if "gpt2" in name else T5ForConditionalGeneration)(config)

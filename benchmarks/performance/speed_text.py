"""Time and memory of models that write text: steps of a region, and decoding for several tasks.

Two models with random weights: GPT-2's shape, a decoder alone, and T5-base's, an encoder-decoder.
Each row is a prompt and its answer; the loss is that of the answer alone, and every variant
computes the logits of the answer's tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from speed_serving import Values, compute_ratios, make_bank
from speed_training import Shape, memory_ratio, step_ratios
from torch import Tensor, nn

from cl_graft.inference.task_switch import Switch
from cl_graft.models import TaskModel, TaskServer, graftable_parameters
from cl_graft.models.text_generation import ANSWER, TextHead


@dataclass(frozen=True)
class TextShape(Shape):
    """A model that writes text, with random weights, and prompts with answers."""

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
            return nn.functional.cross_entropy(
                model.answer_logits(rows).flatten(0, 1).float(), answers.flatten()
            )

        return loss


TEXT_SHAPES = (TextShape("gpt2"), TextShape("t5_base"))


def text_steps(shapes: Sequence[TextShape], *, threads: int, repeats: int) -> Values:
    """Time a step of a region against one that trains all blocks."""
    found: Values = {}
    for shape in shapes:
        ratios, region, full = step_ratios(
            "region_step", "full_step", shape, threads=threads, repeats=repeats
        )
        found[f"{shape.name}_region_step/full_step"] = ratios
        found[f"{shape.name}_region_step, seconds"] = region
        found[f"{shape.name}_full_step, seconds"] = full
    return found


def text_memory(shapes: Sequence[TextShape], *, threads: int, repeats: int) -> Values:
    """Measure the peak memory of a step of a region against one that trains all blocks."""
    found: Values = {}
    for shape in shapes:
        ratios, region, full = memory_ratio(
            "region_step", "full_step", shape, threads=threads, repeats=repeats
        )
        found[f"{shape.name}_region_memory/full_memory"] = ratios
        found[f"{shape.name}_region_memory, MB"] = [peak / 1e6 for peak in region]
        found[f"{shape.name}_full_memory, MB"] = [peak / 1e6 for peak in full]
    return found


def decode_mixed_batches(shapes: Sequence[TextShape], *, repeats: int, tasks: int = 8) -> Values:
    """Time the decoding of a batch of several tasks against one of a single task.

    The heads know no token that ends an answer, so that every row is decoded to its longest.
    """
    found: Values = {}
    for shape in shapes:
        ratios, mixed, single = _decode_mixed_batch(shape, repeats=repeats, tasks=tasks)
        found[f"{shape.name}_decoding_{tasks}_tasks/one_task"] = ratios
        found[f"{shape.name}_decoding_{tasks}_tasks, ms"] = [1e3 * seconds for seconds in mixed]
        found[f"{shape.name}_decoding_one_task, ms"] = [1e3 * seconds for seconds in single]
    return found


def _decode_mixed_batch(
    shape: TextShape, *, repeats: int, tasks: int
) -> tuple[list[float], list[float], list[float]]:
    """Return the ratios of the pairs, and the seconds of several tasks and of one."""
    model = shape.model()
    never = TextHead([10**9], shape.answer).state_dict()
    server = TaskServer(Switch(model, make_bank(shape, model, tasks, even=True, head=never)))
    rows, _ = shape.batch()
    prompts = rows[:, :, : -shape.answer]
    owners = [row * tasks // shape.rows for row in range(shape.rows)]
    one = [tasks - 1] * shape.rows
    return compute_ratios(
        lambda: server.answer(prompts, owners), lambda: server.answer(prompts, one), repeats
    )


def _make_backbone(name: str) -> nn.Module:
    """Return a model of transformers' own sizes, or a tiny one."""
    from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

    if "gpt2" in name:
        tiny = {"vocab_size": 200, "n_embd": 48, "n_layer": 2, "n_head": 4}
        ends = {"bos_token_id": 1, "eos_token_id": 1}
        return GPT2LMHeadModel(GPT2Config(**(tiny | ends if name == "tiny_gpt2" else {})))
    sizes = {
        "t5_base": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
        "tiny_t5": {
            "vocab_size": 200,
            "d_model": 48,
            "d_kv": 12,
            "d_ff": 96,
            "num_layers": 2,
            "num_heads": 4,
        },
    }
    starts = {"decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(**sizes[name] | starts))

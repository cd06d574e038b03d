"""TaskModel: a pretrained transformer that answers several tasks, each through its own head.

The three families differ in what they make of a text:

    encoder     pooled states of the last layer -> a trained linear head
    masked_lm   logits over the vocabulary at the one mask token -> the labels' words
    causal_lm   log-probability of each label's string after the prompt

Only the graftable parameters and the heads require gradients; embeddings, pooler and language-model
head never do, so a stock optimiser trains exactly what a graft can hold.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_graft.errors import InputError, nearest
from cl_graft.models.graftable import graftable_parameters
from cl_graft.models.heads import LabelStrings
from cl_graft.models.pooling import POOLINGS
from cl_graft.precision import autocast

__all__ = ["FAMILIES", "TaskModel"]

FAMILIES = ("encoder", "masked_lm", "causal_lm")


class TaskModel(nn.Module):
    """A backbone of transformers' and the heads of the tasks it answers.

    Args:
        backbone: What `AutoModel`, `AutoModelForMaskedLM` or `AutoModelForCausalLM` loads.
        family: One of `FAMILIES`.
        pooling: `"mean"` over the non-padding tokens or the `"first"` token; encoders only.
        mask_token_id: The tokenizer's mask token; masked LMs only.
        name: What to call the model in messages and records.
        precision: In which the backbone computes, ``"fp32"``, ``"bf16"`` or ``"fp16"``: its
            matrix products and their gradients, under autocast. Parameters keep their type; heads,
            label probabilities and losses are computed in fp32.

    Attributes:
        recomputes: Whether `recompute_` was called.
        heads: The heads by `str(task)`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        family: str,
        pooling: str = "mean",
        mask_token_id: int | None = None,
        name: str = "",
        precision: str = "fp32",
    ) -> None:
        if family not in FAMILIES:
            raise InputError(f"no model family {family!r}: {nearest(family, FAMILIES)}")
        if pooling not in POOLINGS:
            raise InputError(f"no pooling {pooling!r}: {nearest(pooling, POOLINGS)}")
        if family == "masked_lm" and mask_token_id is None:
            raise InputError(f"{name or 'the model'} has no mask token, so it is no masked LM")
        autocast(precision, torch.device("cpu"))
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleDict()
        self.family = family
        self.name = name
        self.precision = precision
        self.recomputes = False
        self.pooling = pooling
        self.mask_token_id = mask_token_id
        accepted = inspect.signature(backbone.forward).parameters
        self._takes_segments = (
            "token_type_ids" in accepted and getattr(backbone.config, "type_vocab_size", 0) > 1
        )
        self._takes_cache = "use_cache" in accepted
        self.requires_grad_(False)
        for parameter in graftable_parameters(self).values():
            parameter.requires_grad_(True)

    @property
    def hidden_size(self) -> int:
        """Size of the features that a linear head sees."""
        return cast(Any, self.backbone.config).hidden_size

    @property
    def device(self) -> torch.device:
        """Where the backbone's parameters are."""
        return next(self.backbone.parameters()).device

    def add_head(self, task: int, head: nn.Module) -> None:
        """Give `task` its head, moved to the model's device.

        Raises:
            ValueError: If the task has a head already.
        """
        key = str(int(task))
        if key in self.heads:
            raise ValueError(f"task {key} has a head already; heads: {', '.join(self.heads)}")
        self.heads[key] = head.to(self.device).train(self.training)

    def recompute_(self) -> None:
        """Keep only the inputs of blocks for the backward pass, and compute the rest again.

        Gradient checkpointing (Chen et al., 2016, https://arxiv.org/abs/1604.06174): about a third
        more time for a fraction of the activation memory. It acts in train mode; gradients are the
        same.

        Raises:
            InputError: If the architecture does not support it.
        """
        backbone = cast(Any, self.backbone)
        enable = getattr(backbone, "activation_checkpointing_enable", None)
        try:
            # The other way of torch would not reach the parameters of a model with frozen inputs.
            (enable or backbone.gradient_checkpointing_enable)({"use_reentrant": False})
        except (AttributeError, ValueError) as error:
            raise InputError(
                f"{self.name or 'the model'} has no gradient checkpointing: {error}"
            ) from None
        self.recomputes = True

    def forward(self, x: Tensor, task: int) -> Tensor:
        """Answer a batch of one task.

        Args:
            x: LongTensor of shape (n, 2, L): token ids; and 0 for padding (on the right), 1 for the
                first segment, 2 for the second.
            task: The task label, whose head answers.

        Returns:
            Logits of shape (n, K), fp32. A causal LM's are log-probabilities of the label strings.

        Raises:
            ValueError: If `x` has another shape, the task has no head, or a masked LM's row does
                not hold exactly one mask token.
        """
        head = self._head(task)
        ids, segments = _trim(x)
        if self.family == "encoder":
            features = self.features(ids, segments)
            return head(features.to(next(head.parameters(), features).dtype)).float()
        if self.family == "masked_lm":
            positions = self._mask_positions(ids, segments)
            return head(self._vocabulary_logits(ids, segments, positions)[:, 0].float())
        return self._label_scores(ids, segments, cast(LabelStrings, head))

    def features(self, ids: Tensor, segments: Tensor) -> Tensor:
        """Pool an encoder's last states to features of shape (n, hidden size), fp32.

        Args:
            ids: Token ids of shape (n, L).
            segments: 0 for padding, 1 and 2 for the segments, of shape (n, L).
        """
        with autocast(self.precision, ids.device):
            states = self.backbone(**self._inputs(ids, segments)).last_hidden_state
        return POOLINGS[self.pooling](states, segments != 0)

    def _head(self, task: int) -> nn.Module:
        key = str(int(task))
        if key not in self.heads:
            raise ValueError(f"task {key} has no head; heads: {', '.join(self.heads) or 'none'}")
        return self.heads[key]

    def _inputs(self, ids: Tensor, segments: Tensor) -> dict[str, Tensor | bool]:
        inputs: dict[str, Tensor | bool] = {
            "input_ids": ids,
            "attention_mask": (segments != 0).long(),
        }
        if self._takes_segments:
            inputs["token_type_ids"] = (segments - 1).clamp(min=0)
        if self._takes_cache:
            inputs["use_cache"] = False
        return inputs

    def _mask_positions(self, ids: Tensor, segments: Tensor) -> Tensor:
        """Return the column of every row's mask token, of shape (n, 1)."""
        masks = (ids == self.mask_token_id) & (segments != 0)
        counts = masks.sum(1)
        if not bool((counts == 1).all()):
            row = int((counts != 1).nonzero()[0])
            raise ValueError(
                f"row {row} holds {int(counts[row])} mask tokens (id {self.mask_token_id}), "
                "expected exactly one: was it encoded for a masked LM with this model's tokenizer?"
            )
        return masks.long().argmax(1, keepdim=True)

    def _vocabulary_logits(self, ids: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
        """Return the logits, (n, p, V), at the given columns, (n, p), of every row.

        Only these columns enter the projection to the vocabulary: with a vocabulary of 50,000 it
        would otherwise cost more than a small model's blocks.
        """
        rows = torch.arange(len(ids), device=ids.device)[:, None]
        projection = self.backbone.get_output_embeddings()  # pyright: ignore[reportCallIssue]
        picked = False

        def pick(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            nonlocal picked
            picked = True
            return (inputs[0][rows, positions], *inputs[1:])

        hook = projection.register_forward_pre_hook(pick) if projection is not None else None
        try:
            with autocast(self.precision, ids.device):
                logits = self.backbone(**self._inputs(ids, segments)).logits
        finally:
            if hook is not None:
                hook.remove()
        return logits if picked else logits[rows, positions]

    def _label_scores(self, ids: Tensor, segments: Tensor, strings: LabelStrings) -> Tensor:
        """Return the log-probability of each label's string after each prompt, (n, K).

        Where every string is one token, the prompt's last position answers for all labels at once.
        """
        n = len(ids)
        labels, longest = strings.token_ids.shape
        ends = (segments != 0).sum(1)
        if bool((ends == 0).any()):
            raise ValueError("a prompt without tokens: no position to read labels at")
        if longest == 1:
            logits = self._vocabulary_logits(ids, segments, ends[:, None] - 1)
            spoken = logits.float().log_softmax(-1)[:, 0, strings.token_ids[:, 0]]
            return strings(spoken[..., None])
        places = ends[:, None] + torch.arange(longest, device=ids.device)
        where = places[:, None].expand(n, labels, longest)

        def append(prompts: Tensor, tail: Tensor) -> Tensor:
            wide = F.pad(prompts, (0, longest))[:, None].repeat(1, labels, 1)
            return wide.scatter(2, where, tail.expand(n, labels, longest)).flatten(0, 1)

        logits = self._vocabulary_logits(
            append(ids, strings.token_ids),
            append(segments, strings.within.long()),
            where.flatten(0, 1) - 1,
        )
        spoken = logits.float().log_softmax(-1).view(n, labels, longest, -1)
        targets = strings.token_ids.expand(n, labels, longest)[..., None]
        return strings(spoken.gather(-1, targets)[..., 0])


def _trim(x: Tensor) -> tuple[Tensor, Tensor]:
    """Split (n, 2, L) in token ids and segments, without columns of padding in all rows."""
    if x.dim() != 3 or x.shape[1] != 2 or x.shape[0] == 0 or x.is_floating_point():
        raise ValueError(
            f"a text batch is an integer tensor of shape (n, 2, L) with n ≥ 1: token ids and "
            f"segments; got {tuple(x.shape)} of {x.dtype}"
        )
    ids, segments = x.long().unbind(1)
    used = (segments != 0).any(0).nonzero()
    if len(used) == 0:
        raise ValueError("a batch of padding alone: row 1 of every sample is all zero")
    length = int(used[-1]) + 1
    return ids[:, :length], segments[:, :length]

"""TaskModel: a pretrained transformer that answers several tasks, each through its own head.

The families differ in what they make of a text:

    encoder     pooled states of the last layer -> a trained linear head
    masked_lm   logits over the vocabulary at the one mask token -> the labels' words
    causal_lm   log-probability of each label's string after the prompt, or text
    seq2seq_lm  the same of an encoder-decoder, which reads the prompt and writes the answer

Only the graftable parameters and the heads require gradients; embeddings, pooler and language-model
head never do, so a stock optimiser trains exactly what a graft can hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError, find, nearest
from cl_graft.models.graftable import find_text_config, graftable_parameters
from cl_graft.models.heads import POOLINGS, LabelStrings, TokenHead
from cl_graft.models.quiet import quiet
from cl_graft.models.text_generation import (
    ANSWER,
    TextHead,
    answer_logits,
    decode_rows,
    score_answers,
    score_labels,
    score_labels_by_row,
)
from cl_graft.runtime.threads import lock_model
from cl_graft.training.precision import autocast

Carry = Callable[[list[int]], AbstractContextManager[object]]
"""Makes the context in which a backbone sees rows, from the numbers of the rows they come from."""

FAMILIES = ("encoder", "masked_lm", "causal_lm", "seq2seq_lm")

WRITING = ("causal_lm", "seq2seq_lm")
"""Families that write text, and score labels as strings."""

LONGEST_PLAIN = 128
"""Tokens a row up to which plain products are faster."""


class TaskModel(nn.Module):
    """A backbone of transformers' and the heads of the tasks it answers.

    Args:
        backbone: Model as `AutoModel`, `AutoModelForMaskedLM`, `AutoModelForCausalLM` or
            `AutoModelForSeq2SeqLM` loads it.
        family: One of `FAMILIES`.
        pooling: `"mean"` over the non-padding tokens or the `"first"` token; encoders only.
        mask_token_id: The tokenizer's mask token; masked LMs only.
        name: Name of the model in messages and records.
        precision: Precision of the backbone, ``"fp32"``, ``"bf16"`` or ``"fp16"``: its
            matrix products and their gradients, under autocast. Parameters keep their type; heads,
            label probabilities and losses are computed in fp32.

    Attributes:
        recomputes: Whether `recompute_` was called.
        decodes_by_length: Whether prompts of several lengths are decoded apart, as padding in front
            of one would change its answer (RWKV).
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
        find(POOLINGS, pooling, missing="no pooling")
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
        self.decodes_by_length = False
        self.pooling = pooling
        self.mask_token_id = mask_token_id
        accepted = inspect.signature(backbone.forward).parameters
        self._takes_segments = (
            "token_type_ids" in accepted and getattr(self.text_config, "type_vocab_size", 0) > 1
        )
        self._takes_cache = "use_cache" in accepted
        self._attention = _Attention(backbone, precision)
        self.requires_grad_(False)
        for parameter in graftable_parameters(self).values():
            parameter.requires_grad_(True)

    @property
    def hidden_size(self) -> int:
        """Size of the features that a linear head sees."""
        return self.text_config.hidden_size

    @property
    def text_config(self) -> Any:
        """The part of the backbone's config that is about text: all of it but for images, sound."""
        return find_text_config(self.backbone)

    @property
    def device(self) -> torch.device:
        """Device of the backbone's parameters."""
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
            Logits of shape (n, K), fp32; of a `TokenHead` as it says. A causal LM's are
            log-probabilities of the label strings. Of a `TextHead`, token ids and a value for each:
            (n, 2 (L - 1)) of rows with an answer (`score_answers`), otherwise (n, 2 · longest)
            (`decode_rows`).

        Raises:
            ValueError: If `x` has another shape, the task has no head, or a masked LM's row does
                not hold exactly one mask token.
        """
        head = self._find_head(task)
        ids, segments = _trim(x)
        if isinstance(head, TextHead):
            if bool((segments == ANSWER).any()):
                return score_answers(self, ids, segments, width=x.shape[-1] - 1)
            heads = [head] * len(ids)
            return decode_rows(self, ids, segments, heads, lambda _: nullcontext())
        if self.family in WRITING:
            return score_labels(self, ids, segments, cast(LabelStrings, head))
        if isinstance(head, TokenHead):
            states = self._run(ids, segments).last_hidden_state
            return _apply_head(head, states, segments, x.shape[-1])
        return _apply_head(head, self._compute_states(ids, segments))

    def answer_logits(self, x: Tensor) -> Tensor:
        """Return the logits of given answers in a batch, (n, P, V), P tokens in the longest."""
        return answer_logits(self, *_trim(x))

    def text_features(self, x: Tensor) -> Tensor:
        """Return the features of a batch as `forward` takes it; encoders only."""
        return self.features(*_trim(x))

    def features_at(self, x: Tensor, depth: float) -> Tensor:
        """Pool the states at some depth of an encoder to features of shape (n, hidden size), fp32.

        Args:
            x: A batch as `forward` takes it.
            depth: 0 for the embeddings, 1 for the states after the last block, and between them
                those after the nearest block.
        """
        ids, segments = _trim(x)
        with self.enter_precision(ids):
            states = self.backbone(
                **self._make_inputs(ids, segments), output_hidden_states=True
            ).hidden_states
        return POOLINGS[self.pooling](states[round(depth * (len(states) - 1))], segments != 0)

    def features(self, ids: Tensor, segments: Tensor) -> Tensor:
        """Pool an encoder's last states of tokens, (n, L), to features, (n, hidden size), fp32."""
        states = self._run(ids, segments).last_hidden_state
        return POOLINGS[self.pooling](states, segments != 0)

    def _find_head(self, task: int) -> nn.Module:
        key = str(int(task))
        if key not in self.heads:
            raise ValueError(f"task {key} has no head; heads: {', '.join(self.heads) or 'none'}")
        return self.heads[key]

    def _make_inputs(self, ids: Tensor, segments: Tensor) -> dict[str, Tensor | bool]:
        inputs: dict[str, Tensor | bool] = {
            "input_ids": ids,
            "attention_mask": (segments != 0).long(),
        }
        if self._takes_segments:
            inputs["token_type_ids"] = (segments - 1).clamp(min=0)
        if self._takes_cache:
            inputs["use_cache"] = False
        return inputs

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Compute answers in this thread alone, without gradients, for a `with` block.

        A caller's autocast has no part in it: answers have the model's own precision.
        """
        off = torch.autocast(self.device.type, enabled=False)
        with lock_model(self), torch.no_grad(), off:
            yield

    def enter_precision(self, ids: Tensor) -> AbstractContextManager[object]:
        """Return the context in which the backbone computes a batch of token ids, (n, L)."""
        if not self.recomputes:  # what is computed again must be what was computed before
            self._attention.suit_(ids)
        return autocast(self.precision, ids.device)

    def _run(self, ids: Tensor, segments: Tensor) -> Any:
        with self.enter_precision(ids):
            return self.backbone(**self._make_inputs(ids, segments))

    def _compute_states(self, ids: Tensor, segments: Tensor) -> Tensor:
        """Return what heads take, fp32: an encoder's features, or logits at a row's mask."""
        if self.family == "encoder":
            return self.features(ids, segments)
        positions = self._find_masks(ids, segments)
        return self.compute_logits(ids, segments, positions)[:, 0].float()

    def _find_masks(self, ids: Tensor, segments: Tensor) -> Tensor:
        masks = (ids == self.mask_token_id) & (segments != 0)
        counts = masks.sum(1)
        if not bool((counts == 1).all()):
            row = int((counts != 1).nonzero()[0])
            raise ValueError(
                f"row {row} holds {int(counts[row])} mask tokens (id {self.mask_token_id}), "
                "expected exactly one: was it encoded for a masked LM with this model's tokenizer?"
            )
        return masks.long().argmax(1, keepdim=True)

    def compute_logits(self, ids: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
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
            logits = self._run(ids, segments).logits
        finally:
            if hook is not None:
                hook.remove()
        return logits if picked else logits[rows, positions]

    def compute_decoder_logits(
        self, ids: Tensor, segments: Tensor, written: Tensor, *, once: bool = True
    ) -> Tensor:
        """Return the logits, (m, p, V), of an encoder-decoder after each token that it wrote.

        Args:
            ids: Token ids of prompts, (n, L).
            segments: 0 for padding, of shape (n, L).
            written: Token ids that the decoder reads, (m, p), m a multiple of n: as many rows in a
                row for each prompt.
            once: Whether each prompt is read once, however many rows are written for it.
        """
        backbone = cast(Any, self.backbone)
        times = len(written) // len(ids)
        mask = (segments != 0).long()
        with self.enter_precision(ids):
            if once and times > 1:
                states = backbone.get_encoder()(input_ids=ids, attention_mask=mask)
                states.last_hidden_state = states.last_hidden_state.repeat_interleave(times, 0)
                read: dict[str, Any] = {"encoder_outputs": states}
            else:
                read = {"input_ids": ids.repeat_interleave(times, 0)}
            return backbone(
                **read,
                attention_mask=mask.repeat_interleave(times, 0),
                decoder_input_ids=written,
                use_cache=False,
            ).logits

    def answer_rows(
        self, x: Tensor, heads: Sequence[nn.Module], *, carry: Carry | None = None
    ) -> list[Tensor]:
        """Answer each row through a head of its own, in one forward pass of the backbone.

        Args:
            x: A batch as `forward` takes it.
            heads: The head of each row, as `make_head` makes them.
            carry: Called with the row of `x` that each row of the backbone's batch comes from (a
                causal LM may read several for each, one a label); the backbone is run in the
                context that it returns.

        Returns:
            The logits of each row, of shape (K,) with the K of its head, or as its `TokenHead`
            says, fp32.

        Raises:
            ValueError: As `forward` does, or if there is not one head a row.
        """
        if len(heads) != len(x):
            raise ValueError(f"expected a head for each of {len(x)} rows, got {len(heads)}")
        ids, segments = _trim(x)
        carry = carry or (lambda _: nullcontext())
        each = list(range(len(x)))
        groups = {id(head): (head, [n for n in each if heads[n] is head]) for head in heads}
        if self.family in WRITING:
            return _write_rows(self, ids, segments, heads, carry)
        tokens = any(isinstance(head, TokenHead) for head, _ in groups.values())
        with carry(each):
            if tokens:
                states = self._run(ids, segments).last_hidden_state
                pooled = POOLINGS[self.pooling](states, segments != 0)
            else:
                states = pooled = self._compute_states(ids, segments)
        answers: dict[int, Tensor] = {}
        for head, rows in groups.values():
            if isinstance(head, TokenHead):
                outputs = _apply_head(head, states[rows], segments[rows], x.shape[-1])
            else:
                outputs = _apply_head(head, pooled[rows])
            answers |= zip(rows, outputs, strict=True)
        return [answers[n] for n in each]


def longest_row(model: TaskModel) -> int | None:
    """Return how many tokens a model can read; None if its config sets no limit (XLNet's is -1)."""
    positions = getattr(model.text_config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return None
    for name, module in model.backbone.named_modules():
        if isinstance(module, nn.Embedding) and "position" in name:
            # RoBERTa's positions start after the one of padding.
            return positions - (0 if module.padding_idx is None else module.padding_idx + 1)
    return positions


def _write_rows(
    model: TaskModel, ids: Tensor, segments: Tensor, heads: Sequence[nn.Module], carry: Carry
) -> list[Tensor]:
    """Answer rows with text or label strings, each kind in a pass of its own."""
    text = [n for n, head in enumerate(heads) if isinstance(head, TextHead)]
    labels = [n for n, head in enumerate(heads) if not isinstance(head, TextHead)]
    answers: dict[int, Tensor] = {}
    if text:
        writers = [cast(TextHead, heads[n]) for n in text]
        decoded = decode_rows(
            model, ids[text], segments[text], writers, lambda rows: carry([text[n] for n in rows])
        )
        answers |= zip(text, decoded, strict=True)
    if labels:
        strings = [cast(LabelStrings, heads[n]) for n in labels]
        scores = score_labels_by_row(
            model,
            ids[labels],
            segments[labels],
            strings,
            lambda rows: carry([labels[n] for n in rows]),
        )
        answers |= zip(labels, scores, strict=True)
    return [answers[n] for n in range(len(ids))]


def _apply_head(head: nn.Module, states: Tensor, *more: Tensor | int) -> Tensor:
    return head(states.to(next(head.parameters(), states).dtype), *more).float()


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


class _Attention:
    """The setting of a backbone's attention to what is fastest for a batch.

    On a CPU in half precision the backward pass of torch's fused attention costs the same for 64
    tokens a row as for 512, so short rows compute gradients with transformers' ``"eager"``
    attention, which is the same up to rounding (decision 3). Answers keep the fused one, and with
    it their bits.
    """

    def __init__(self, backbone: nn.Module, precision: str) -> None:
        self._backbone = cast(Any, backbone)
        self._halves = precision != "fp32"
        self._open = self._read_setting() == "sdpa"

    def suit_(self, ids: Tensor) -> None:
        """Set the attention for a batch of shape (n, L), on the device that computes."""
        if not self._open:
            return
        short = ids.device.type == "cpu" and ids.shape[1] <= LONGEST_PLAIN
        wanted = "eager" if short and torch.is_grad_enabled() and self._is_half() else "sdpa"
        if self._read_setting() != wanted:
            with quiet():  # it warns where it cannot
                self._backbone.set_attn_implementation(wanted)
            self._open = self._read_setting() == wanted

    def _read_setting(self) -> str | None:
        return getattr(self._backbone.config, "_attn_implementation", None)

    def _is_half(self) -> bool:
        stored = next(self._backbone.parameters()).dtype
        return self._halves or stored in (torch.bfloat16, torch.float16)

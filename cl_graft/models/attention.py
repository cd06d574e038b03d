"""The attention that a backbone trains with: in half precision on a CPU, plain for short rows.

transformers takes torch's fused attention. On a CPU in half precision its backward pass costs the
same for 64 tokens a row as for 512, and more there than the matrix products, softmax and all, that
it stands for. So up to 128 tokens a row gradients are computed with transformers' ``"eager"``
attention, https://huggingface.co/docs/transformers/en/attention_interface. Both compute the same up
to rounding; ``docs/decisions/0026-plain-attention-for-short-rows.md`` has the figures. Answers keep
the fused one, so that they have the bits that the model gives without this package.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from cl_graft.models.quiet import quiet

__all__ = ["LONGEST", "Attention"]

LONGEST = 128
"""Tokens a row up to which plain products are faster."""


class Attention:
    """The setting of a backbone's attention to what is fastest for a batch.

    A model that does not come with torch's fused attention, or cannot change it, keeps what it has.

    Args:
        backbone: A model of transformers'.
        precision: Precision of its fp32 parameters, as in `cl_graft.training.precision`.
    """

    def __init__(self, backbone: nn.Module, precision: str) -> None:
        self._backbone = cast(Any, backbone)
        self._halves = precision != "fp32"
        self._open = self._read_setting() == "sdpa"

    def suit_(self, ids: Tensor) -> None:
        """Set the attention for a batch of shape (n, L), on the device that computes."""
        if not self._open:
            return
        short = ids.device.type == "cpu" and ids.shape[1] <= LONGEST
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

"""Checks whether a module is a linear layer, and whether it stores its weight transposed."""

from __future__ import annotations

from torch import nn

from cl_graft.runtime.forward_override import original_class


def is_linear(module: nn.Module) -> bool:
    """Tell whether a module is exactly torch's Linear or transformers' Conv1D.

    A subclass may compute otherwise, or, as in `nn.MultiheadAttention`, never be called.
    """
    return original_class(module) is nn.Linear or is_conv1d(module)


def is_conv1d(module: nn.Module) -> bool:
    """Tell whether a module is the Conv1D of GPT-2, whose weight is stored as (in, out)."""
    kind = original_class(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"

"""The device on which a run computes."""

from __future__ import annotations

import torch

from cl_graft.errors import InputError, first_line


def pick_device(name: str | torch.device) -> torch.device:
    """Return the device of a name; ``"auto"`` is a GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"no device {str(name)!r} here: {first_line(error)}") from None
    return device


def explain_slow_precision(precision: str, device: torch.device) -> str:
    """Say that a processor has no instructions for a precision; empty where it has, or for a GPU.

    Training steps of MiniLM in bf16 took more than ten times those in fp32 on such a processor.
    """
    if precision == "fp32" or device.type != "cpu":
        return ""
    # False on processors without the instructions; builds of torch without oneDNN cannot tell.
    known = getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported", None)
    if known is None or known():
        return ""
    return f"this processor has no instructions for {precision}, which is far slower here than fp32"

"""The device on which a run computes.

It is apart because the command line, opened banks and benchmarks all take a device by its name.
"""

from __future__ import annotations

import torch

from cl_graft.errors import InputError, first_line

__all__ = ["pick_device"]


def pick_device(name: str) -> torch.device:
    """Return the device of a name; ``"auto"`` is a GPU if there is one, else the CPU.

    Raises:
        InputError: If there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"no device {name!r} here: {first_line(error)}") from None
    return device

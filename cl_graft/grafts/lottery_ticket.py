"""Lottery tickets: tuned values inside a region, and zero everywhere else.

Grafting leaves the base's values outside; a lottery ticket has none there (Frankle and Carbin,
2019, https://arxiv.org/abs/1803.03635; Panigrahi et al., 2023, Fig. 4b,
https://arxiv.org/abs/2302.06600).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from cl_graft.grafts.graft import copy_, find_parameters
from cl_graft.grafts.model_state import preserve_parameters
from cl_graft.grafts.region import Parameters, Region

__all__ = ["lottery_ticket"]


@contextmanager
def lottery_ticket(model: nn.Module, tuned: Parameters, region: Region) -> Iterator[nn.Module]:
    """Let a model have its tuned values on a region and 0 outside for a `with` block.

    Parameters beyond the region's layout (embeddings, heads) keep their values; everything is put
    back bit for bit.
    """
    parameters = find_parameters(model, region.layout)
    with preserve_parameters(parameters):
        for name, mask in region.masks().items():
            inside = mask.to(tuned[name].device)
            copy_(parameters, {name: torch.where(inside, tuned[name], 0)})
        yield model

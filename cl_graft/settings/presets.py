"""Presets: partial configs under a name. The settings that a config has itself override them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PAPER_MOST_SHOTS = 512
"""The paper's schedule of 16·n·k steps for n classes stops growing at this k (App. A.2)."""

GRID_BATCH_SIZES = (2, 4, 8)
GRID_LEARNING_RATES = (1e-2, 5e-3, 1e-3)
"""The paper's grid for SGD (App. A.2, https://arxiv.org/abs/2302.06600)."""

GRID_ADAMW_RATES = (1e-5, 2e-5, 5e-5)
"""For AdamW, of which the paper gives no grid: LM-BFF's, on whose code it builds (Gao et al., 2021,
App. B.2, https://arxiv.org/abs/2012.15723)."""

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "default": {},
        "paper": {
            "stream": {"max_dev": None},
            "fine_tuning": {"warm_up": 0.0},
            "grafting": {
                "localizer": "paper_mask",
                "density": 1e-4,
                "mask_steps": 100,
                "mask_batch": 1024,
                "avoid_owned": False,
                "optimizer": "sgd",
                "lr": 0.1,
                "lr_decay": "constant",
                "dropout": True,
            },
            "training": {"grid": True, "paper_steps": True},
        },
        "fast": {
            "grafting": {
                "localizer": "base_gradient",
                "optimizer": "sgd",
                "density": 3e-3,
                "mask_steps": 6,
                "mask_batch": 32,
                "evaluations": 0,
            }
        },
    }
)

DEMO: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "stream": {
            "tasks": ["topic", "banking", "scope"],
            "shots": None,
            "max_length": 32,
            "max_dev": 120,
            "max_test": 200,
        },
        "fine_tuning": {"steps": 120, "batch_size": 4, "lr": 0.1, "evaluations": 1},
        "comparison": {"strategies": ["grafting", "lora", "naive"]},
    }
)
"""The config of the demo: it shows everything within minutes on two cores.

No rate was chosen on these tasks: 0.1 is what dense training chose on dev rows of other tasks with
this encoder (``docs/results/baselines.md``), and those of LoRA and of regions are the defaults.
"""

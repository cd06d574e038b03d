"""Processes that train together, see test_data_parallel.py."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

import cl_graft  # noqa: F401, I001  before Avalanche

from avalanche.core import SupervisedPlugin
from tiny_streams import learner, quick, text_learner, vector_stream
from torch import nn
from torch.multiprocessing.spawn import start_processes

from cl_graft import load_task
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.strategies import ClipGradient, SplitBatches, TextBatches
from cl_graft.strategies.heads import unwrap_model


class Seen(SupervisedPlugin, supports_distributed=True):
    """Keeps what a strategy holds after each step, and what was sent."""

    def __init__(self, split: SplitBatches) -> None:
        super().__init__()
        self.split = split
        self.rows: list[int] = []
        self.losses: list[float] = []
        self.bytes: list[int] = []

    def after_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        assert len(strategy.mb_output) == len(strategy.mbatch[0])
        self.rows.append(len(strategy.mb_output))
        self.losses.append(float(strategy.loss.detach()))
        self.bytes.append(self.split.bytes_a_step)


def main(kind: str, processes: str, checkpoint: str, out: str) -> None:
    """Fork so many processes with the variables of torchrun, which would import all anew."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ |= {"WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    start_processes(train, (kind, checkpoint, out), int(processes), start_method="fork")


def train(rank: int, kind: str, checkpoint: str, out: str) -> None:
    """Learn as the process of this rank."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    split = SplitBatches()
    seen = Seen(split)
    torch.manual_seed(0)
    if kind in ("text", "answers"):
        own: dict[str, Any] = {}
        if kind == "answers":
            names = ("instruction", "input")
            tasks = [load_task(form, data=Path(out), warn=False) for form in names]
            own = {"tasks": tasks, "family": "causal_lm", "max_length": 48}
        made = text_learner(
            Path(checkpoint),
            **own,
            settings=quick(localizer="movement", dropout=False),
            plugins=[split, TextBatches(0), ClipGradient(1.0), seen],
            train_mb_size=7,
        )
    else:
        stream = vector_stream(labels=[0, 1])
        model = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 2))
        made = learner(
            model,
            stream,
            plugins=[split, seen],
            train_mb_size=16 // dist.get_world_size(),
            grafting={"dev": stream.streams["test"]},  # all 32 training rows train
        )
    for experience in made.train_stream:
        made.strategy.train(experience, eval_streams=[])
    bank = made.strategy.bank
    facts = {
        "rows": seen.rows,
        "losses": seen.losses,
        "bytes": seen.bytes,
        "owned": [len(entry.owned.region) for entry in bank.entries],
        "coordinates": [entry.owned.region.index.tolist() for entry in bank.entries],
        "values": [entry.owned.values.tolist() for entry in bank.entries],
        "weights": hash_tensors(dict(unwrap_model(made.model).named_parameters())),
        "parameters": sum(p.numel() for p in unwrap_model(made.model).parameters()),
    }
    Path(out, f"{kind}-{dist.get_world_size()}-{rank}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

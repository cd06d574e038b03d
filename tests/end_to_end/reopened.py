"""A process that opens the banks of another one around bases that it builds itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import cl_graft  # noqa: F401, I001  before Avalanche

import torch
from head_models import accuracy, made

from cl_graft import load_bank


def main(folder: str) -> None:
    """Answer for every bank in a folder, named by its case, and go on learning with it."""
    torch.set_num_threads(1)
    for file in sorted(Path(folder).glob("*.json")):
        facts = json.loads(file.read_text())
        run = made(facts["case"], heads=2, bank=load_bank(file.with_suffix("")))
        run.plugin.carry(run.model, None)
        facts["reopened"] = run.hashes()
        facts["scores again"] = [accuracy(run, j) for j in (0, 1)]
        run.strategy.train(run.train_stream[2])
        facts["after a third task"] = run.hashes()
        file.write_text(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The bank and the graft that the stored files of the format's version hold.

    python tests/storage/golden_banks.py tests/storage/fixtures/version1

writes them; from 0.1.0 on, the files of a version are never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, RecordedBatch
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout, Region
from cl_graft.storage import StoredGraft, save_bank, save_graft

_LAYOUT = Layout(("block.weight", "block.bias"), ((6, 5), (7,)))
_BASE = BaseIdentity("ab" * 32, "org/model", "float32", {"family": "encoder", "größe": 1.5})


def stored_bank() -> GraftBank:
    """Make a bank of two entries, all of whose numbers are powers of two: no rounding, no draws.

    The second entry builds on the base alone.
    """
    bank = GraftBank(_LAYOUT, _BASE)
    tokens = torch.tensor([[[7, 8, 9, 0], [1, 1, 2, 0]], [[7, 0, 0, 0], [1, 0, 0, 0]]])
    recorded_batch = RecordedBatch(
        tokens, torch.tensor([[0.5, -2.0], [0.25, 4.0]]), {"torch": "2.13.0"}
    )
    for number, task in enumerate(["sentiment", "größer als / topic"]):
        claimed = Region.of(_LAYOUT, [0, 3 + number, 17, 29, 36])
        under = () if number else None
        free = bank.free(claimed, builds_on=under)
        entry = Entry(
            task,
            number,
            Graft(free, 2.0 ** -torch.arange(float(len(free)))),
            claimed - free,
            head={"weight": torch.eye(2, 3), "bias": torch.tensor([-0.0, 1.0])},
            standalone=Graft(claimed, 2.0 ** torch.arange(5.0)) if number else None,
            weights_sha256=f"{number:064x}",
            recorded_batch=recorded_batch if number else None,
            metadata={"label_names": ["a", "ä"], "score": 0.75, "nothing": None},
            builds_on=under,
        )
        bank = bank.append(entry)
    return bank


def stored_graft() -> StoredGraft:
    """Make a graft with a head."""
    graft = Graft(Region.of(_LAYOUT, [1, 30]), torch.tensor([float("inf"), -0.0]))
    return StoredGraft(graft, _BASE, "sentiment", {"bias": torch.ones(2)}, {"score": 0.5})


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    save_bank(stored_bank(), folder / "bank")
    save_graft(stored_graft(), folder / "graft.safetensors")

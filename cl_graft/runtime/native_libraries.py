"""Set-up of native libraries before torch or torchvision is imported, neither of them here."""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SPIN_COUNT = 1000
"""Turns that a waiting thread of OpenMP spins before it sleeps."""

_USERS_OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
_OPERATORS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
# torch takes a declaration back when its Library object is collected.
_declarations: dict[str, torch.library.Library] = {}


def limit_spinning() -> bool:
    """Let OpenMP's threads sleep soon when they wait, in this process and those it starts.

    By default they spin for millions of turns, time that other processes lose. libgomp reads its
    settings once, when torch is loaded; the user's own ones stay. False where nothing was set.
    """
    if "torch" in sys.modules or any(name in os.environ for name in _USERS_OWN):
        return False
    os.environ["GOMP_SPINCOUNT"] = str(SPIN_COUNT)
    return True


def declare_missing_operators() -> None:
    """Have operators declared that torchvision's extension lacks, when torchvision is imported.

    Avalanche and transformers import torchvision. One that was built for another torch cannot load
    its extension, and its Python half fails with `operator torchvision::nms does not exist`. Text
    needs no such operator, so a schema without a kernel is enough.
    """
    if not any(isinstance(finder, _DeclareOnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DeclareOnImport())


class _DeclareOnImport(MetaPathFinder):
    """Finds no module, but declares what is missing when torchvision is about to ask for it.

    A second definition is fatal to the process, so torchvision's own extension comes first.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        del path, target
        if fullname == "torchvision._meta_registrations":
            import torch

            for name, schema in _OPERATORS.items():
                if not hasattr(torch.ops.torchvision, name):
                    _declarations[name] = torch.library.Library("torchvision", "FRAGMENT")
                    _declarations[name].define(schema)

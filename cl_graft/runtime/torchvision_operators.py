"""A shim for torchvision whose compiled operators do not match the installed torch.

Avalanche imports torchvision, and so does transformers wherever it finds it. A torchvision that
was built for another torch (the CPU build of torch beside a registry's CUDA build of torchvision)
cannot load its compiled extension; its Python half then asks torch for `torchvision::nms` and
`torchvision::qnms` all the same, and the import ends in `operator torchvision::nms does not
exist`. Text needs neither operator. Declaring their schemas, without any kernel, is enough for
that import to pass; calling them still fails, as it should.

A second definition of an operator is fatal to the process. So nothing is declared before
torchvision itself has tried to load its extension, whatever the file is called: a finder of modules
waits for the import of `torchvision._meta_registrations`, the first that asks for the operators.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}

# torch takes a declaration back when its Library object is collected.
_declarations: dict[str, torch.library.Library] = {}


class _DeclareOnImport(MetaPathFinder):
    """Finds no module, but declares what is missing when torchvision is about to ask for it."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        del path, target
        if fullname == "torchvision._meta_registrations":
            _declare()


def declare_missing_operators() -> None:
    """Have operators declared that torchvision's extension lacks, when torchvision is imported.

    Call it before the first import of torchvision; it imports neither torchvision nor torch.
    Calling it again changes nothing.
    """
    if not any(isinstance(finder, _DeclareOnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DeclareOnImport())


def list_declared_operators() -> tuple[str, ...]:
    """Return the operators that had to be declared when torchvision was imported."""
    return tuple(_declarations)


def _declare() -> None:
    import torch

    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(schema)
            _declarations[name] = library

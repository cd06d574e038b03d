"""Adapters of PEFT: the check of their tensors, and their merge into a model by PEFT itself.

No other source is computed by another library; the model that PEFT makes is taken as it is.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from cl_graft.errors import InputError, first_line
from cl_graft.models.quiet import quiet

ADAPTER = "adapter_model.safetensors"
"""Name of the file of an adapter's tensors."""

ADAPTER_CONFIG = "adapter_config.json"
"""Name of the file that describes an adapter."""

PREFIX = "base_model.model."
"""Prefix of the names of a wrapped model's parameters in files of PEFT."""

_OWN = re.compile(r"\.(lora_\w+|shira_\w+|modules_to_save)\b.*$|\.(weight|bias)$")
"""Suffix after a module's path in the names of an adapter's tensors."""

_WRAPPED = re.compile(r"\.(base_layer|modules_to_save\.default)(?=\.)")
"""Part that PEFT adds to the names of the parameters of modules that it wraps."""


def read_adapter(folder: Path | str) -> dict[str, Tensor]:
    """Read the tensors of an adapter by their names in the file.

    Raises:
        InputError: If the file cannot be read, a tensor is NaN or infinite, or the indices of a
            sparse one do not fit.
    """
    path = Path(folder) / ADAPTER
    with explain_reading(path):
        held = load_file(path)
    for name, tensor in held.items():
        if not bool(tensor.isfinite().all()):
            raise InputError(f"{path} holds NaN or infinities in {name!r}")
        if name.endswith(".shira_indices"):
            _check_places(tensor, name, path)
    return held


def merge_adapter(whole: nn.Module, folder: Path | str, held: Iterable[str], *, name: str) -> None:
    """Merge an adapter into a model, in place.

    Args:
        whole: The model.
        folder: The adapter's folder.
        held: Names of its tensors.
        name: Name of the model in messages.

    Raises:
        InputError: If peft is not installed, the adapter does not fit the model, or it holds
            tensors that its config does not describe.
    """
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ImportError as error:
        raise InputError("adapters are read with peft: pip install 'cl-graft[peft]'") from error

    try:
        with quiet(), warnings.catch_warnings():
            # PEFT asks transformers by a name that is on its way out, and torch for sparse tensors.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly")
            adapted: Any = PeftModel.from_pretrained(cast(Any, copy.deepcopy(whole)), folder)
            adapted.merge_adapter()
    except (AttributeError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{folder} cannot be merged into {name!r}: {first_line(error)}") from error
    if unknown := sorted(set(held) - get_peft_model_state_dict(adapted).keys()):
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise InputError(
            f"{Path(folder) / ADAPTER} holds {unknown[0]!r}{more}, which the adapter that "
            f"{ADAPTER_CONFIG} describes does not have"
        )
    merged = {
        _WRAPPED.sub("", key.removeprefix(PREFIX)): tensor
        for key, tensor in adapted.named_parameters()
        if ".original_module." not in key
    }
    with torch.no_grad():
        for key, parameter in whole.named_parameters():
            parameter.copy_(merged[key])


def adapted_modules(held: Iterable[str]) -> set[str]:
    """Return the paths of the modules that an adapter changes, from its tensors' names."""
    return {_OWN.sub("", name.removeprefix(PREFIX)) for name in held}


def classifier_shapes(folder: Path | str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an adapter's tensors that belong to a classifier, by name.

    Raises:
        InputError: If the file cannot be read.
    """
    path = Path(folder) / ADAPTER
    with explain_reading(path), safe_open(path, framework="pt") as file:
        return {
            name: tuple(file.get_slice(name).get_shape())
            for name in file.keys()  # noqa: SIM118
            if re.search(r"\.(classifier|score|pre_classifier)\.", name)
        }


def stored_parameters(folder: Path | str) -> set[str]:
    """Return the names of the model's parameters of which an adapter holds whole copies.

    Raises:
        InputError: If the file cannot be read.
    """
    path = Path(folder) / ADAPTER
    with explain_reading(path), safe_open(path, framework="pt") as file:
        names = (name.replace(".modules_to_save.", ".") for name in file.keys())  # noqa: SIM118
        return {name.removeprefix(PREFIX) for name in names}


@contextmanager
def explain_reading(path: Path | str) -> Iterator[None]:
    """Turn the errors of reading a file of tensors in a `with` block into `InputError`."""
    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from error


def check_ranks(
    config: Mapping[str, Any], held: Mapping[str, Tensor], *, folder: Path | str
) -> None:
    """Refuse ranks that no tensor of an adapter has, before PEFT makes tensors of them.

    Args:
        config: Content of the adapter's config.
        held: The adapter's tensors, as `read_adapter` returns them.
        folder: The adapter's folder, for messages.

    Raises:
        InputError: If there is one.
    """
    own = config.get("rank_pattern")
    ranks = [config.get("r"), *(own.values() if isinstance(own, dict) else ())]
    largest = max((size for tensor in held.values() for size in tensor.shape), default=0)
    for rank in ranks:
        if isinstance(rank, int) and rank > largest:
            raise InputError(
                f"{Path(folder) / ADAPTER_CONFIG} has the rank {rank:,}, and the largest dimension "
                f"of a tensor in {ADAPTER} is {largest:,}"
            )


def _check_places(places: Tensor, name: str, path: Path) -> None:
    """Refuse rows and columns, (2, n), that are no whole numbers from 0 or repeat themselves."""
    if places.dim() != 2 or len(places) != 2 or places.is_floating_point():
        raise InputError(
            f"{path}: {name!r} must be rows and columns as whole numbers, (2, n), got "
            f"{tuple(places.shape)} of {places.dtype}"
        )
    rows, columns = places.long()
    width = int(columns.max()) + 1 if places.numel() else 1
    flat = rows * width + columns
    if bool((places < 0).any()) or len(flat.unique()) != len(flat):
        raise InputError(f"{path}: {name!r} holds places below 0, or one of them twice")

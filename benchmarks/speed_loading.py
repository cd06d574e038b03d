"""What it costs to load what tasks know, against loading the model that they know it with.

Every function returns lists of raw values by key: the ratios of alternating pairs, or the values
themselves where the key ends in a unit. All files are in the system's cache.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import peak_memory
from safetensors.torch import load_file
from speed_serving import Values, bank_of, ratios_of
from speed_training import Shape
from transformers import AutoConfig, AutoModel

from cl_graft.store import load_bank, save_bank

__all__ = ["loading"]

_PAGE = 1024
"""Values of fp32 on a page of memory."""


def loading(shape: Shape, *, repeats: int, tasks: int = 100) -> Values:
    """Time reading a bank, every byte checked, against reading a model; weigh the bank.

    ``load_model`` makes a module without values and reads its safetensors file into it. Beside it
    stand ``map_model``, which is what `cl_graft.load_model` does with the weights (transformers
    maps the file; every page is touched here, as a first answer does), and ``load_weights``, which
    reads the file into a module whose memory is warm. Again and again in one process, a model finds
    the memory of the one before; ``first in a process`` is what a program that starts pays.
    """
    model = shape.model()
    encoder: Any = model.get_submodule("encoder")
    bank = bank_of(shape, model, tasks)
    owned = len(bank.owned())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_bank(bank, folder / "bank")
        save_bank(bank_of(shape, model, 1), folder / "one task")
        encoder.save_pretrained(folder / "model")
        files = [path for path in (folder / "bank").rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)

        def map_model() -> None:
            made = AutoModel.from_pretrained(folder / "model", add_pooling_layer=False)
            for parameter in made.parameters():
                parameter.detach().view(-1)[::_PAGE].sum()

        def load_weights() -> None:
            encoder.load_state_dict(load_file(_weights(folder)))

        found: Values = {"bytes_per_coordinate": [size / owned]}
        key = f"load_bank_{tasks}_tasks"
        read_bank = _read_bank(folder)
        load_model = _load_model(folder)
        for other, load in (
            ("load_model", load_model),
            ("map_model", map_model),
            ("load_weights", load_weights),
        ):
            ratios, first, second = ratios_of(read_bank, load, repeats)
            found[f"{key}/{other}"] = ratios
            found.setdefault(f"{key}, ms", []).extend(1e3 * seconds for seconds in first)
            found[f"{other}, ms"] = [1e3 * seconds for seconds in second]
        first = [_first(_prepared_bank, folder) for _ in range(repeats)]
        second = [_first(_prepared_model, folder) for _ in range(repeats)]
        mark = ", first in a process"
        found[f"{key}/load_model{mark}"] = [a / b for a, b in zip(first, second, strict=True)]
        found[f"{key}{mark}, ms"] = [1e3 * seconds for seconds in first]
        found[f"load_model{mark}, ms"] = [1e3 * seconds for seconds in second]
    return found


def _first(prepare: Callable[[Path], Callable[[], float]], folder: Path) -> float:
    """Return the seconds that what `prepare` returns takes in a fresh process."""
    threads = torch.get_num_threads()
    return peak_memory(prepare, folder, threads=threads, allocator="default").result


def _prepared_bank(folder: Path) -> Callable[[], float]:
    load_bank(folder / "one task")  # imports are not measured
    return lambda: _seconds(_read_bank(folder))


def _prepared_model(folder: Path) -> Callable[[], float]:
    with torch.device("meta"):
        AutoModel.from_config(AutoConfig.from_pretrained(folder / "model"))
    return lambda: _seconds(_load_model(folder))


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _read_bank(folder: Path) -> Callable[[], object]:
    return partial(load_bank, folder / "bank")


def _load_model(folder: Path) -> Callable[[], None]:
    config = AutoConfig.from_pretrained(folder / "model")

    def load() -> None:
        with torch.device("meta"):
            made = AutoModel.from_config(config, add_pooling_layer=False)
        made.to_empty(device="cpu").load_state_dict(load_file(_weights(folder)), strict=False)

    return load


def _weights(folder: Path) -> Path:
    return folder / "model" / "model.safetensors"

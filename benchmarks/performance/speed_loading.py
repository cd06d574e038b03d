"""Cost of loading the grafts of tasks, against loading their model.

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
from safetensors.torch import load_file
from speed_serving import Values, make_bank
from speed_training import Shape
from time_and_memory import peak_memory
from transformers import AutoConfig, AutoModel

from cl_graft.storage import load_bank, save_bank

_PAGE = 1024
"""Values of fp32 on a page of memory."""


def loading(shape: Shape, *, repeats: int, tasks: int = 100) -> Values:
    """Time reading a bank, every byte checked, against reading a model; weigh the bank.

    ``load_model`` makes a module without values and reads its safetensors file into it. Beside it
    stands ``map_model``, which is what `cl_graft.load_model` does with the weights (transformers
    maps the file; every page is touched here, as a first answer does). Each is read twice in a
    process of its own: the first time is what a program that starts pays, ``once more`` finds the
    memory of the first.
    """
    model = shape.model()
    encoder: Any = model.get_submodule("encoder")
    bank = make_bank(shape, model, tasks)
    key = f"load_bank_{tasks}_tasks"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_bank(bank, folder / "bank")
        save_bank(make_bank(shape, model, 1), folder / "one task")
        encoder.save_pretrained(folder / "model")
        files = [path for path in (folder / "bank").rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        sides = {key: _bank, "load_model": _read_model, "map_model": _map_model}
        seconds: dict[str, list[float]] = {}
        for _ in range(repeats):
            for side, prepare in sides.items():
                first, again = _in_a_process(prepare, folder)
                seconds.setdefault(side, []).append(first)
                seconds.setdefault(f"{side}, once more", []).append(again)
    found: Values = {"bytes_per_coordinate": [size / len(bank.owned())]}
    for other in ("load_model", "map_model"):
        for mark in ("", ", once more"):
            both = zip(seconds[f"{key}{mark}"], seconds[f"{other}{mark}"], strict=True)
            found[f"{key}/{other}{mark}"] = [a / b for a, b in both]
    return found | {f"{side}, ms": [1e3 * own for own in all_] for side, all_ in seconds.items()}


def _in_a_process(
    prepare: Callable[[Path], Callable[[], object]], folder: Path
) -> tuple[float, float]:
    """Return the seconds that what `prepare` returns takes in a fresh process, and once more."""
    threads = torch.get_num_threads()
    return peak_memory(_time_both, prepare, folder, threads=threads, allocator="default").result


def _time_both(
    prepare: Callable[[Path], Callable[[], object]], folder: Path
) -> Callable[[], tuple[float, float]]:
    run = prepare(folder)
    return lambda: (_seconds(run), _seconds(run))


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _bank(folder: Path) -> Callable[[], object]:
    load_bank(folder / "one task")  # imports are not measured
    return partial(load_bank, folder / "bank")


def _read_model(folder: Path) -> Callable[[], None]:
    config = AutoConfig.from_pretrained(folder / "model")
    _make(config)

    def load() -> None:
        made = _make(config).to_empty(device="cpu")
        made.load_state_dict(load_file(folder / "model" / "model.safetensors"), strict=False)

    return load


def _map_model(folder: Path) -> Callable[[], None]:
    _make(AutoConfig.from_pretrained(folder / "model"))

    def load() -> None:
        made = AutoModel.from_pretrained(folder / "model", add_pooling_layer=False)
        for parameter in made.parameters():
            parameter.detach().view(-1)[::_PAGE].sum()

    return load


def _make(config: Any) -> Any:
    with torch.device("meta"):
        return AutoModel.from_config(config, add_pooling_layer=False)

"""A bench of one of the papers' experiments at the scale ``smoke``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers import EXPERIMENTS, experiment_config
from papers.bench import Bench

from cl_graft.storage.cache_folder import DirectoryCache


def smoke_bench(
    name: str, model: Path, cache: Path, *sets: str, data: Path | None = None, **more: Any
) -> Bench:
    """Return a bench as a process of its own would have it, with its cache in a folder."""
    sets = (f"model.name={model}", *sets)
    config = experiment_config(EXPERIMENTS[name], "smoke", data=data, sets=sets)
    return Bench(config, cache=DirectoryCache(cache), **{"data_seed": 0, **more})

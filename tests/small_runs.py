"""Small runs of any strategy: streams of built-in tasks on a tiny encoder."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FEW = ("grafting", "naive", "ewc", "replay", "lora", "packnet", "merging_by_ties")
"""One strategy of each family or two, for what the fast suite shows of all of them."""

SMALL: dict[str, Any] = {
    "tasks": ["scope", "topic"],
    "shots": 8,
    "steps": 5,
    "batch_size": 8,
    "max_length": 24,
    "max_test": 20,
    "evaluations": 1,
    "density": 0.01,
    "mask_steps": 2,
    "mask_batch": 16,
    "device": "cpu",
    # A finished head gets no gradient from some strategies, and one of 0 from others.
    "weight_decay": 0.0,
}


@dataclass
class Runs:
    """Runs of a model, each done once; they share tokens, dense runs and rankings."""

    model: Path
    out: Path
    settings: dict[str, Any] = field(default_factory=dict)
    done: dict[str, Path] = field(default_factory=dict)
    drawn: dict[str, Any] = field(default_factory=dict)
    """Tasks, by what they are drawn with: drawing takes as long as training."""

    def __call__(
        self, strategy: str, *, own: dict[str, Any] | None = None, seed: int = 0, **settings: Any
    ) -> Any:
        """Return the results of a strategy with settings of its own."""
        from cl_graft.lab.results.run_results import read_result

        return read_result(self.folder(strategy, own=own, seed=seed, **settings))

    def folder(
        self, strategy: str, *, own: dict[str, Any] | None = None, seed: int = 0, **settings: Any
    ) -> Path:
        """Return the folder of a run."""
        from configs import config_with

        from cl_graft.lab.experiments.folders import run_folder
        from cl_graft.lab.experiments.run import run
        from cl_graft.settings.tasks import load_tasks
        from cl_graft.storage.cache_folder import DirectoryCache

        values = SMALL | self.settings | {"model": str(self.model), **settings}
        if own is not None:
            values["strategy_settings"] = {strategy: own}
        key = f"{strategy} {seed} {json.dumps(values, sort_keys=True)}"
        if key not in self.done:
            self.out.mkdir(parents=True, exist_ok=True)
            out = self.out / str(sum(1 for _ in self.out.iterdir()))
            config = config_with(values)
            drawn_by = ("tasks", "shots", "max_test", "scenario", "classes_per_experience")
            stream = json.dumps([values.get(name) for name in drawn_by])
            if stream not in self.drawn:
                self.drawn[stream] = load_tasks(config.stream, seed=0)
            more = {"tasks": self.drawn[stream], "cache": DirectoryCache(self.out / "cache")}
            run(config, strategy=strategy, seed=seed, out=out, **more)
            self.done[key] = run_folder(out, strategy, seed)
        return self.done[key]


def without_dropout(checkpoint: Path, folder: Path) -> Path:
    """Copy a checkpoint whose dropout is 0."""
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        config[name] = 0.0
    (folder / "config.json").write_text(json.dumps(config))
    return folder

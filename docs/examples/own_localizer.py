"""A localizer of one's own, beside two that come with cl_graft.

    python docs/examples/own_localizer.py

A localizer scores every weight of the model; the best 0.5 % become the region of the task. This one
takes the weights that fine-tuning moved most in proportion to their size. All three share one dense
run, which the cache keeps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cl_graft as cg
from cl_graft.localization import LocalizerInputs
from cl_graft.storage.cache_folder import DirectoryCache
from torch import Tensor


@cg.register_localizer(
    name="relative_movement",
    source="https://example.org/my-paper, Eq. 1",
    needs_gradients=False,
)
def relative_movement(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score weights by how far fine-tuning moved them, in units of their own size."""
    return {
        name: ((inputs.tuned[name] - base).abs() / (base.abs() + 1e-3)).float()
        for name, base in inputs.base.items()
    }


def main() -> None:
    """Learn a task with three localizers, and keep the dense run's values on their regions."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--out", type=Path, default=Path("localizers"))
    parser.add_argument("--shots", type=int, default=60, help="training rows a class")
    parser.add_argument("--steps", type=int, default=60, help="steps of the dense run")
    parser.add_argument("--rows", type=int, default=100, help="test rows")
    options = parser.parse_args()

    for localizer in ("relative_movement", "movement", "learned_mask"):
        config = {
            "stream": {
                "tasks": ["topic"],
                "shots": options.shots,
                "max_length": 48,
                "max_test": options.rows,
            },
            "model": {"name": options.model},
            "fine_tuning": {"steps": options.steps},
            "grafting": {
                "localizer": localizer,
                "density": 0.005,
                "mask_steps": 8,
                "mask_batch": 32,
                "retrain": False,
            },
        }
        out, cache = options.out / localizer, DirectoryCache(options.out / "cache")
        result = cg.run(config, strategy="grafting", seed=0, out=out, cache=cache)
        weights = result.coordinates["topic"]["owned"]
        print(f"{localizer}: {result.R[0][0]:.1%} with {weights:,} weights")


if __name__ == "__main__":
    main()

"""Check what `cl-graft plan` predicts against what the phases take.

Every phase of four models with random weights runs in a process of its own, through the functions
that experiments call: `fine_tune_task`, `localize`, and `RegionParameters` with SGD. Its peak is
the highest resident set above the one taken after imports and after the model was made, and one
forward (see `measure.py`); the model's own bytes are added to it, as the plan counts them, for the
peak of the process above its imports.

    python benchmarks/performance/plan_check.py [--models roberta,minilm,gpt2,llama] [--results DIR]
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from time_and_memory import peak_memory
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from cl_graft.cli.output import to_plain
from cl_graft.grafts.region import Layout, Region
from cl_graft.lab.experiments.plan import make_plan
from cl_graft.localization import LocalizerInputs, localize
from cl_graft.models import TaskModel, graftable_parameters, linear_head
from cl_graft.models.heads import LabelStrings
from cl_graft.models.load import build_backbone, read_config
from cl_graft.settings import config_from
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.examples import Examples
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.region_parameters import RegionParameters

MODELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "roberta": (
        "encoder",
        {
            "model_type": "roberta",
            "vocab_size": 50265,
            "max_position_embeddings": 514,
            "type_vocab_size": 1,
            "pad_token_id": 1,
        },
    ),
    "minilm": (
        "encoder",
        {
            "model_type": "bert",
            "hidden_size": 384,
            "num_hidden_layers": 6,
            "num_attention_heads": 12,
            "intermediate_size": 1536,
        },
    ),
    "gpt2": ("causal_lm", {"model_type": "gpt2"}),
    "llama": (
        "causal_lm",
        {
            "model_type": "llama",
            "hidden_size": 512,
            "intermediate_size": 1376,
            "num_hidden_layers": 6,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
        },
    ),
}
BATCH, LENGTH, LOCALIZED, CANDIDATES = 8, 64, 32, 20
BARS = {"roberta": 0.15}
OTHER_BAR = 0.2
DENSITY = 1e-4
"""8,505 coordinates of RoBERTa-base."""


@dataclass(frozen=True)
class Check:
    """One phase of one model, in bytes."""

    model: str
    phase: str
    weights: int
    predicted: int
    measured: int
    default: int

    @property
    def error(self) -> float:
        """Relative error of the peak of the process above its imports."""
        return (self.predicted - self.measured) / (self.weights + self.measured)

    @property
    def error_beyond(self) -> float:
        """Relative error of what the phase takes beside the model."""
        return (self.predicted - self.measured) / self.measured

    @property
    def holds(self) -> bool:
        """Whether the error of the peak is within the bar of the model."""
        return abs(self.error) <= BARS.get(self.model, OTHER_BAR)


def make_task(folder: Path, *, batch: int, length: int) -> LearnableTask:
    """Make a model with random weights, and random texts, one of them shorter than the others."""
    torch.manual_seed(0)
    name = folder.name
    family = MODELS[name][0]
    config = read_config(str(folder), family=family)
    backbone = build_backbone(config, name=name, family=family, dtype=torch.float32)
    model = TaskModel(backbone, family=family, name=name).eval()
    encoder = family == "encoder"
    head = linear_head(model.hidden_size, 2, seed=0) if encoder else LabelStrings([[2], [3]])
    model.add_head(0, head)
    rows = max(batch, 64)
    inputs = torch.ones(rows, 2, length, dtype=torch.int64)
    inputs[:, 0] = torch.randint(5, 1000, (rows, length))
    inputs[::2, :, -4:] = 0
    inputs[-1, :, :4] = inputs[0, :, :4].clamp(min=1)
    examples = Examples(TensorDataset(inputs, torch.arange(rows) % 2))
    with torch.no_grad():
        model(inputs[:1], 0)
    return LearnableTask(
        model=model,
        parameters=graftable_parameters(model),
        head={f"heads.0.{n}": p for n, p in head.named_parameters()},
        forward=lambda batch: model(batch, 0),
        criterion=F.cross_entropy,
        score=lambda logits, targets: float((logits.argmax(1) == targets).float().mean()),
        train=examples,
        dev=examples,
        device=torch.device("cpu"),
        content=name,
    )


def dense(folder: Path) -> Callable[[], None]:
    task = make_task(folder, batch=BATCH, length=LENGTH)
    schedule = FineTuning(steps=4, batch_size=BATCH, lr=1e-3, evaluations=3)

    def run() -> None:
        fine_tune_task(task, schedule, seed=0)

    return run


def localization(folder: Path) -> Callable[[], None]:
    task = make_task(folder, batch=LOCALIZED, length=LENGTH)
    layout = Layout.of(task.parameters)
    k = max(1, round(DENSITY * layout.total))
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        tuned = {
            name: p.detach() + 1e-3 * torch.randn(p.shape, generator=generator)
            for name, p in task.parameters.items()
        }
        rows = [range(m, m + LOCALIZED) for m in (0, LOCALIZED)]
        inputs = LocalizerInputs(
            model=task.model,
            parameters=task.parameters,
            tuned=tuned,
            losses=lambda step: [lambda part=part: task.loss(part) for part in rows],
            dev_score=task.dev_score,
            train_score=task.dev_score,
            seed=0,
        )
        depth = min(layout.total, max(20 * k, layout.total // 20))
        localize(inputs, "learned_mask", k=k, steps=4, depth=depth, candidates=CANDIDATES * k)

    return run


def region(folder: Path) -> Callable[[], None]:
    task = make_task(folder, batch=BATCH, length=LENGTH)
    layout = Layout.of(task.parameters)
    k = max(1, round(DENSITY * layout.total))
    spread = torch.randperm(layout.total, generator=torch.Generator().manual_seed(0))[:k]
    coordinates = spread.sort().values.clone()
    del spread

    def run() -> None:
        task.model.requires_grad_(False)
        head = [p.requires_grad_(True) for p in task.head.values()]
        with RegionParameters(task.model, Region(layout, coordinates)) as live:
            optimizer = torch.optim.SGD([live.vector, *head], lr=0.1)
            for step in range(3):
                task.model.train()
                optimizer.zero_grad()
                task.loss(range(step, step + BATCH)).backward()
                nn.utils.clip_grad_norm_([live.vector, *head], 1.0)
                optimizer.step()
                live.write_()
            task.model.eval()
            task.dev_score()

    return run


PHASES: Mapping[str, Callable[[Path], Callable[[], None]]] = {
    "dense run": dense,
    "localization": localization,
    "region training": region,
}


def check(name: str, folder: Path) -> list[Check]:
    """Predict and measure every phase of a model."""
    family, model_config = MODELS[name]
    (folder / name).mkdir()
    (folder / name / "config.json").write_text(json.dumps(model_config))
    settings = {
        "stream": {"tasks": ["any"], "max_length": LENGTH},
        "model": {"name": str(folder / name), "family": family},
        "fine_tuning": {"batch_size": BATCH},
        "grafting": {"density": DENSITY, "mask_candidates": CANDIDATES},
    }
    plan = make_plan(config_from(settings))
    planned = {phase.name: phase.kept + phase.step for phase in plan.phases}
    checks = []
    for phase, prepare in PHASES.items():
        peaks = [
            peak_memory(prepare, folder / name, allocator=allocator).memory
            for allocator in ("exact", "default")
        ]
        checks.append(Check(name, phase, plan.model_bytes, planned[phase], *peaks))
        print(_row(checks[-1]), flush=True)
    return checks


HEAD = (
    "| model | phase | model, MB | predicted beside, MB | measured, MB | off | off, peak of the "
    "process | bar | default malloc, MB |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | --- "
    "| ---: |"
)


def _row(check: Check) -> str:
    numbers = (check.weights, check.predicted, check.measured)
    return (
        f"| {check.model} | {check.phase} | "
        + " | ".join(f"{number / 1e6:,.1f}" for number in numbers)
        + f" | {check.error_beyond:+.1%} | {check.error:+.1%} | "
        + ("holds" if check.holds else "missed")
        + f" | {check.default / 1e6:,.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Check what `cl-graft plan` predicts.")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    arguments = parser.parse_args()
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        checks = [c for name in arguments.models.split(",") for c in check(name, Path(folder))]
    import transformers

    stored = {
        "checks": [
            {**asdict(c), "error": c.error, "error_beyond": c.error_beyond, "holds": c.holds}
            for c in checks
        ],
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": {"processor": platform.machine(), "threads": 1},
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "plan.json").write_text(json.dumps(to_plain(stored), indent=2) + "\n")
    rows = "\n".join(_row(check) for check in checks)
    (arguments.results / "plan.md").write_text(f"{HEAD}\n{rows}\n")


if __name__ == "__main__":
    main()

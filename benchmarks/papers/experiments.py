"""The experiments of the two papers, one row each, and the scales at which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from common import STORED_RECIPE

from cl_graft.errors import find
from cl_graft.metrics.statistics import LEAST_SAMPLES
from papers import (
    grafts,
    head_refit,
    multitask,
    other_kinds,
    peers,
    random_control,
    region_rates,
    sam,
    sub_skills,
    transfer,
)
from papers.bench import Bench
from papers.measurements import Measurement, Summary

Varies = Literal["sample", "seed", "rows"]

SCALES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "smoke": {
            **STORED_RECIPE,
            "stream.shots": 8,
            "fine_tuning.steps": 4,
            "fine_tuning.evaluations": 1,
            "stream.max_length": 24,
            "stream.max_dev": 16,
            "stream.max_test": 24,
            "grafting.mask_steps": 2,
            "grafting.mask_batch": 16,
            "grafting.density": 0.01,
            "grafting.budgets": [0.01],
            "model.device": "cpu",
        },
        "cpu": {
            **STORED_RECIPE,
            "stream.shots": 256,
            "fine_tuning.steps": 400,
            "fine_tuning.lr": 0.05,
            "fine_tuning.evaluations": 4,
            "stream.max_dev": 128,
            "stream.max_test": 400,
            "grafting.mask_steps": 32,
            "grafting.mask_batch": 64,
            "grafting.density": 0.003,
            "grafting.lr": 0.1,
            "model.precision": "bf16",
            "fine_tuning.group_by_length": True,
        },
        "paper": {
            "preset": "paper",
            "model.name": "roberta-base",
            "model.family": "masked_lm",
            "model.pooling": "first",
            "stream.shots": 4096,
            "stream.max_length": None,
            "stream.max_test": None,
        },
    }
)
"""Settings of each scale. As in the paper, the sample of the data has a seed of its own beside the
model's, which is 0; `Experiment.varies` says which of them a cell draws. At `cpu` dense runs and
regions keep the rates with which the stored results were run."""

VARIES: Mapping[Varies, str] = MappingProxyType(
    {"sample": "data seeds", "seed": "model seeds", "rows": "draws of the rows"}
)
"""Names of the numbers of cells."""

_FOUR = ("sst2_sent", "ag_news", "qnli", "qqp")
_SAM = ("cola", "stsb", "mrpc", "copa", "wsc")
_LEARNED = ("stsb", "mrpc")
"""Of these, what MiniLM learns most of in 400 steps."""
_TEN = ("sst2_sent", "cr", "mr", "mpqa", "ag_news", "qnli", "snli", "mnli", "mrpc", "qqp")
_THIRTEEN = (*_TEN, "cola", "yelp_polarity", "imdb")
_TWELVE = (*_TEN[:5], "subj", *_TEN[5:8], "rte", *_TEN[8:])
_EIGHT = ("sst2_sent", "cr", "snli", "mnli", "qqp", "mrpc", "ag_news", "qnli")
_TWO = ("sst2_sent", "qnli")
_LARGE = ("sst2_sent", "ag_news", "qnli", "mnli")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table or figure."""

    name: str
    title: str
    source: str
    run: Callable[[Bench], Iterator[Measurement]]
    tasks: tuple[str, ...]
    paper_tasks: tuple[str, ...] = ()
    paper_cells: int = 5
    built_in: tuple[str, ...] = ("scope",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    cpu: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    measure: str = "score"
    axis: str = ""
    against: str = ""
    logarithmic: bool = False
    heatmaps: tuple[tuple[str, str], ...] = ()
    heatmap_axes: tuple[str, str] = ("region i", "task j")
    kinds: tuple[str, ...] = ("classification",)
    own_runs: bool = True
    varies: Varies = "sample"
    cells: str = ""
    shown: tuple[str, ...] = ()
    conclude: (
        Callable[[Sequence[Sequence[Measurement]], Sequence[Summary]], Iterator[Measurement]] | None
    ) = None

    def list_tasks(self, scale: str) -> tuple[str, ...]:
        """Return the tasks of a scale."""
        at_paper = self.paper_tasks or self.tasks
        return {"smoke": self.built_in, "paper": at_paper}.get(scale, self.tasks)

    def seeds(self, scale: str) -> list[int]:
        """Return the cells of a scale."""
        fewest = 1 if self.conclude is None else LEAST_SAMPLES
        return list(range({"smoke": fewest, "cpu": 3, "paper": self.paper_cells}[scale]))


def _of(
    name: str, title: str, run: Any, tasks: tuple[str, ...], *, source: str = "", **more: Any
) -> Experiment:
    paper = "Fu et al., 2023" if name.startswith("sam_") else "Panigrahi et al., 2023"
    place = name.removeprefix("sam_").replace("table", "Table ").replace("fig", "Fig. ")
    source = source or f"{paper}, {place}"
    return Experiment(name=name, title=title, source=source, run=run, tasks=tasks, **more)


_DENSITY: Mapping[str, Any] = {"axis": "density", "logarithmic": True}
_STANDARD: Mapping[str, Any] = {"model.family": "encoder"}
_THREE = ("scope", "banking", "answered")
_SEVERAL: Mapping[str, Any] = {
    "tasks": _EIGHT,
    "built_in": _THREE,
    "measure": "overlap",
    "own_runs": False,
    "heatmaps": (("overlap", "overlap of regions"), ("relative gain", "relative gain (Eq. 5)")),
}
_BY_ADAMW: Mapping[str, Any] = {"fine_tuning.optimizer": "adamw", "fine_tuning.lr": 1e-4}
_FEWER_STEPS: Mapping[str, Any] = {"fine_tuning.steps": 200}
"""AdamW is further after as many steps; a joint run takes them for each of its tasks."""
_IN_SAM: Mapping[str, Any] = {
    "settings": {
        **_STANDARD, "grafting.density": 0.005, "fine_tuning.optimizer": "adamw",
        "fine_tuning.lr": 1e-4, "fine_tuning.weight_decay": 0.01, "grafting.lr": 2e-3,
    },
    "cpu": {"fine_tuning.evaluations": 0}, "kinds": ("classification", "regression"),
    "varies": "seed", "paper_cells": 10,
    "paper": {
        "preset": "default", "stream.shots": None, "stream.max_dev": None,
        "fine_tuning.steps": 20_000, "fine_tuning.batch_size": 16, "fine_tuning.evaluations": 40,
        "grafting.lr": 1e-4, "grafting.mask_steps": 600, "grafting.mask_batch": 16,
    },
}  # fmt: skip
"""The paper's schedule at the scale `paper`. In 400 steps few parameters need a larger rate than
all, the same one for every method; WSC has 3 rows of dev, on which nothing is chosen."""
_PERTURBED: Mapping[str, Any] = {**_IN_SAM, "varies": "rows"}
_OF_TABLE_1: Mapping[str, Any] = {**_IN_SAM, "cells": "sam_table1"}
_AT_RATES: Mapping[str, Any] = {
    "settings": {**_STANDARD, "grafting.head_lr": 0.3, "grafting.lr": 0.3},
    "cpu": {
        "model.precision": "fp32", "fine_tuning.steps": 200, "fine_tuning.evaluations": 1,
        "grafting.budgets": [1e-4, 1e-3, 3e-3, 1e-2], "grafting.mask_steps": 12,
        "grafting.mask_batch": 32, "stream.max_test": 1000,
    },
}  # fmt: skip

_OF_KINDS: Mapping[str, Any] = {
    "tasks": ("conll2003", "xquad_en", "stsb", "sst2_sent"),
    "kinds": ("classification", "regression", "tagging", "extractive_qa"),
    "settings": {**_STANDARD, "grafting.head_lr": 0.05},
    "cpu": {
        "stream.shots": None, "stream.max_train": 1024, "stream.max_dev": 100,
        "stream.max_test": 250, "stream.max_length": 128, "model.precision": "fp32",
        "fine_tuning.steps": 80, "fine_tuning.batch_size": 8, "fine_tuning.lr": 0.3,
        "fine_tuning.evaluations": 1,
        "grafting.budgets": [3e-4, 3e-3, 3e-2], "grafting.mask_steps": 8, "grafting.mask_batch": 32,
    },
    "paper": {"stream.shots": None, "grafting.budgets": [3e-4, 3e-3, 3e-2]},
}  # fmt: skip

_OF_TEXT: Mapping[str, Any] = {
    "tasks": (
        "task363_sst2_polarity_classification", "task1510_evalution_relation_extraction",
        "task875_emotion_classification",
    ),
    "kinds": ("text2text",),
    "settings": {
        "model.family": "causal_lm", "grafting.localizer": "movement", "grafting.optimizer": "sgd",
        "stream.task_settings": {"scope": {"kind": "text2text"}},
    },
    "cpu": {
        "stream.name": "superni-order1", "stream.task_settings": {}, "model.name": "smollm2",
        "stream.shots": None, "stream.max_train": 128, "stream.max_dev": 32,
        "stream.max_test": 100, "stream.max_length": 150, "model.precision": "fp32",
        "fine_tuning.steps": 60, "fine_tuning.batch_size": 4, "fine_tuning.lr": 0.1,
        "fine_tuning.evaluations": 1, "grafting.budgets": [3e-4, 3e-3, 3e-2],
    },
    "paper": {
        "stream.name": "superni-order1", "stream.task_settings": {}, "model.name": "smollm2",
        "stream.shots": None, "grafting.budgets": [3e-4, 3e-3, 3e-2],
    },
}  # fmt: skip

_WORK: Mapping[str, Any] = {
    "stream.task_settings": {
        "clinc150_work": {"rows_from": "clinc150", "where": {"domain": "work"}}
    }
}
_TAKEN_APART: Mapping[str, Any] = {
    "tasks": ("clinc150_work",),
    "built_in": ("banking",),
    "settings": {**_STANDARD, "grafting.lr": 0.3, "grafting.density": 0.01},
    "cpu": {
        **_WORK, "stream.shots": 512, "stream.max_test": 600, "model.precision": "fp32",
        "fine_tuning.steps": 300, "fine_tuning.evaluations": 2, "grafting.mask_steps": 12,
        "grafting.mask_batch": 32,
    },
    "paper": {**_WORK, "stream.shots": 512},
    "measure": "accuracy, own head, graft",
    "heatmap_axes": ("on the base", "rows"),
    "heatmaps": (
        ("accuracy, own head, graft", "accuracy, graft of the dense run"),
        *(
            (f"relative gain, {what}, own head, {kind}", f"relative gain in {what}, {title}")
            for kind, title in (
                ("graft", "graft of the dense run"), ("re-trained graft", "re-trained graft"),
            )
            for what in ("accuracy", "loss")
        ),
    ),
}  # fmt: skip

_ROWS = (
    _of("table1", "Grafts, their re-training and BitFit", grafts.graft_and_peers, _FOUR),
    _of("table2", "Grafts keep score and calibrate", grafts.calibrated_grafts, _TEN,
        paper_tasks=_TWELVE),
    _of(
        "table3", "Grafts out of distribution", transfer.out_of_distribution,
        ("sst2_sent", "yelp_polarity", "imdb", "qnli", "mnli", "snli"),
        built_in=("scope", "entailment"),
        measure="accuracy out of distribution",
    ),
    _of("table5", "Larger data", grafts.densities,
        ("sst2_sent", "ag_news", "qnli", "snli"),
        settings={"grafting.density": 0.0012},
        cpu={"stream.shots": None, "fine_tuning.steps": 1600, "grafting.mask_steps": 80},
        paper={"stream.shots": 50_000, "grafting.mask_steps": 1000}, **_DENSITY),
    _of("table6", "LoRA, adapters and grafts", peers.peers_and_densities, ("mpqa", "qnli"),
        paper_tasks=_FOUR, measure="ECE", **_DENSITY),
    _of("table7", "LoRA, adapters and grafts out of distribution", peers.peers_elsewhere,
        ("mpqa", "yelp_polarity", "sst2_sent", "qnli", "mnli", "snli"),
        built_in=("scope", "entailment"), measure="accuracy out of distribution", **_DENSITY),
    _of("table8", "FISH's and random regions as grafts", grafts.fisher_masks, _FOUR, **_DENSITY),
    _of("table9", "A causal model", grafts.calibrated_grafts, _FOUR,
        paper_tasks=_TWELVE, settings={"model.family": "causal_lm", "grafting.optimizer": "sgd"},
        paper={"model.name": "gpt2", "grafting.density": 0.0005, "stream.max_length": 256}),
    _of("fig2", "Learned, most moved and random regions", grafts.regions_by_density, _TWO,
        **_DENSITY),
    _of("fig3", "Regions of standard fine-tuning", grafts.regions_by_density, _LARGE,
        settings=_STANDARD, cpu={"stream.max_test": 2000}, **_DENSITY),
    _of("fig4a", "Grafts of biases", grafts.bias_grafts, _TWO, **_DENSITY),
    _of("fig4b", "Lottery tickets", grafts.lottery_tickets, _TWO, axis="density"),
    _of("fig5", "Optimisers", grafts.optimizers, _TWO, **_DENSITY),
    _of("fig6", "Top probabilities", grafts.top_probabilities, ("qnli",),
        measure="share of rows", axis="probability of the answer, middle of a bin"),
    _of("fig7", "WiSE curves in and out of distribution", transfer.wise,
        ("mpqa", "yelp_polarity", "sst2_sent", "qnli", "mnli", "snli"),
        built_in=("scope", "entailment"), measure="accuracy out of distribution",
        axis="α, or density", against="score in distribution"),
    _of("fig7c", "Out of distribution, by rows learned", transfer.more_rows,
        ("qnli", "mnli", "snli"), built_in=("scope", "entailment"),
        measure="accuracy out of distribution", axis="training rows", logarithmic=True),
    _of("fig8", "Regions of tasks in a multi-task model", multitask.regions_and_unions, **_SEVERAL),
    _of("fig11", "Regions in a multi-task model from a small γ_base",
        multitask.from_a_small_base, **_SEVERAL),
    _of("fig12", "Regions in a multi-task model from a large γ_base",
        multitask.from_a_large_base, **_SEVERAL),
    _of("fig13", "Regions in a multi-task model by AdamW", multitask.task_regions,
        settings=_BY_ADAMW, cpu=_FEWER_STEPS, **_SEVERAL),
    _of("fig14", "Regions in a multi-task model by AdamW + L1", multitask.task_regions,
        settings={**_BY_ADAMW, "fine_tuning.l1": 1e-3}, cpu=_FEWER_STEPS, **_SEVERAL),
    _of("fig9", "In which layers regions lie", grafts.layers, _FOUR,
        measure="share of the region", axis="layer"),
    _of("fig10", "In which kinds of parameters regions lie", grafts.kinds, _FOUR,
        measure="share of the region"),
    _of("fig15", "Core skills are learned first", transfer.core_skills,
        ("sst2_sent", "qnli", "snli", "mnli"), axis="step", own_runs=False),
    _of("theorem_d2", "Train-test gap and bound", grafts.train_test_gaps, _FOUR,
        source="Panigrahi et al., 2023, Theorems D.2 and D.4", measure="gap"),
    _of("region_rates", "Is localization worth its cost once regions are trained again?",
        region_rates.region_rates, _LARGE[:3], paper_tasks=_LARGE, source="this project",
        axis="learning rate of the region", cpu={"stream.max_test": 2000}, logarithmic=True),
    _of("random_control", "Localizers against random regions, each at its best rate",
        random_control.against_random, _LARGE[:3], source="this project",
        conclude=random_control.differences_from_random, measure="above random", **_AT_RATES,
        **_DENSITY),
    _of("gradient_share", "What regions hold of the gradient at the base",
        random_control.gradient_shares, _LARGE[:3], source="this project",
        measure="share of the squared gradient", **_AT_RATES, **_DENSITY),
    _of("majority_gain", "What re-trained grafts gain over the best constant answer",
        region_rates.gains_over_the_majority, _THIRTEEN, source="this project"),
    _of("head_refit", "Grafts without re-training under a head that fits them",
        head_refit.refitted_grafts, _TEN, source="this project",
        conclude=partial(random_control.differences_from_random, measure="score, head fitted"),
        paper_tasks=_TWELVE, settings=_STANDARD, measure="score, head fitted", **_DENSITY),
    _of("sub_skills", "Can a graft be taken apart?", sub_skills.sub_skills,
        source="this project", conclude=sub_skills.conclude, **_TAKEN_APART),
    _of("other_kinds", "Do skills of other kinds localize?", other_kinds.localize_kinds,
        source="this project", measure="score, head fitted", **_OF_KINDS, **_DENSITY),
    _of("generation", "Do skills of a language model that writes its answers localize?",
        other_kinds.localize_text, source="this project", **_OF_TEXT, **_DENSITY),
    _of("memorized", "Calibration once fine-tuning knows its rows", grafts.memorize, _THIRTEEN,
        source="this project", settings={**_STANDARD, "stream.shots": 64}, measure="ECE"),
    _of("sam_table1", "Ways to choose what trains", sam.methods, _SAM,
        shown=("score", sam.MIXED_LATE), **_IN_SAM),
    _of("sam_table2", "Perturbed data", sam.perturbed_data, _LEARNED,
        paper_tasks=_SAM, **_PERTURBED),
    _of("sam_table3", "Time", sam.methods, _SAM, measure="seconds", shown=("seconds",),
        **_OF_TABLE_1),
    _of("sam_table4", "Share tuned", sam.ratios, _SAM, measure="share tuned", **_IN_SAM),
    _of("sam_table5", "Significance", sam.methods, _SAM,
        shown=("score",), measure="mean difference", conclude=sam.differences, **_OF_TABLE_1),
    _of("sam_table6", "Significance on perturbed data", sam.perturbed_data, _LEARNED,
        paper_tasks=_SAM, cells="sam_table2", measure="mean difference", conclude=sam.differences,
        **_PERTURBED),
    _of("sam_fig3", "Projection discontinuity", sam.projections, _SAM,
        measure="training loss", axis="step", **_IN_SAM),
    _of("sam_fig4", "Stability and performance", sam.methods, _SAM,
        shown=("score",), measure="performance rank", axis="stability rank", conclude=sam.ranks,
        **_OF_TABLE_1),
    _of("sam_fig5", "Density", sam.sparsities, _LEARNED, paper_tasks=_SAM, measure="test score",
        **_IN_SAM, **_DENSITY),
)  # fmt: skip

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType({row.name: row for row in _ROWS})


def find_experiment(name: str) -> Experiment:
    """Look an experiment up."""
    return find(EXPERIMENTS, name, missing="unknown experiment")

"""Which modules the reference documents, and where each public name is to be found."""

from __future__ import annotations

from collections.abc import Mapping

from markdown_pieces import table

__all__ = ["MODULES", "modules", "public_names"]


def public_names() -> str:
    """The names of `import cl_graft`, in the order of their modules."""
    import cl_graft

    homes: dict[str, list[str]] = {}
    for name in cl_graft.__all__:
        homes.setdefault(_home(getattr(cl_graft, name), cl_graft._HOME_OF[name]), []).append(name)
    return table(
        ("names", "documented in"),
        (
            (", ".join(f"`{name}`" for name in sorted(names)), f"`{home}`")
            for home, names in sorted(homes.items())
        ),
    )


def modules() -> str:
    """The documentation of every public module."""
    parts = []
    for title, names in MODULES.items():
        parts.append(f"## {title}")
        for name in names:
            parts.append(
                f"### {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```"
            )
    return "\n\n".join(parts)


MODULES: Mapping[str, tuple[str, ...]] = {
    "Regions, grafts and banks": (
        "cl_graft.region",
        "cl_graft.graft",
        "cl_graft.bank",
        "cl_graft.switch",
        "cl_graft.serving",
        "cl_graft.flat",
        "cl_graft.sparse",
        "cl_graft.keeping",
        "cl_graft.errors",
    ),
    "Files": (
        "cl_graft.store.banks",
        "cl_graft.store.repair",
        "cl_graft.store.grafts",
        "cl_graft.store.locks",
        "cl_graft.store.writing",
        "cl_graft.hub.repository",
        "cl_graft.hub.card",
    ),
    "The skill of a fine-tuned model": ("cl_graft.skill", "cl_graft.trainer_callback"),
    "Learning a task": (
        "cl_graft.learning",
        "cl_graft.locating",
        "cl_graft.posing",
        "cl_graft.warmup",
        "cl_graft.passes",
        "cl_graft.training",
        "cl_graft.precision",
        "cl_graft.activations",
        "cl_graft.dropout",
        "cl_graft.allocator",
        "cl_graft.openmp",
        "cl_graft.trouble",
        "cl_graft.localization.problem",
        "cl_graft.localization.table",
        "cl_graft.localization.ranking",
    ),
    "The laboratory": (
        "cl_graft.analysis.anatomy",
        "cl_graft.analysis.bound",
        "cl_graft.analysis.gain",
        "cl_graft.analysis.interpolation",
        "cl_graft.analysis.lottery",
        "cl_graft.analysis.ranks",
        "cl_graft.analysis.significance",
        "cl_graft.analysis.stability",
        "cl_graft.analysis.sweep",
        "cl_graft.analysis.trajectory",
        "cl_graft.laboratory.run",
        "cl_graft.laboratory.table",
        "cl_graft.laboratory.readings",
        "cl_graft.laboratory.claims.rule",
        "cl_graft.laboratory.claims.view",
        "cl_graft.laboratory.stored",
        "cl_graft.laboratory.pages",
        "cl_graft.laboratory.localizing",
        "cl_graft.laboratory.answers",
        "cl_graft.laboratory.bench",
        "cl_graft.laboratory.retraining",
        "cl_graft.mixout",
        "cl_graft.proximal",
    ),
    "Avalanche": (
        "cl_graft.strategies.grafting",
        "cl_graft.strategies.plugin",
        "cl_graft.strategies.routed",
        "cl_graft.strategies.merged",
        "cl_graft.strategies.session",
        "cl_graft.strategies.multitask",
        "cl_graft.strategies.steps",
        "cl_graft.strategies.batches",
        "cl_graft.strategies.precision",
        "cl_graft.strategies.watch",
        "cl_graft.strategies.table",
        "cl_graft.strategies.row",
        "cl_graft.strategies.settings",
        "cl_graft.strategies.size",
        "cl_graft.strategies.ingredients",
        "cl_graft.strategies.baselines.bounds",
        "cl_graft.strategies.baselines.penalties",
        "cl_graft.strategies.baselines.distillation",
        "cl_graft.strategies.baselines.rehearsal",
        "cl_graft.strategies.baselines.prototypes",
        "cl_graft.strategies.baselines.own_values",
        "cl_graft.strategies.baselines.inserted",
        "cl_graft.strategies.baselines.low_rank",
        "cl_graft.strategies.baselines.packnet",
        "cl_graft.strategies.baselines.masks",
        "cl_graft.metrics.plugins",
        "cl_graft.metrics.tensorboard",
    ),
    "Planning": (
        "cl_graft.planning.plan",
        "cl_graft.planning.phases",
        "cl_graft.planning.hollow",
        "cl_graft.planning.ledger",
    ),
    "Models": (
        "cl_graft.models.load",
        "cl_graft.models.task_model",
        "cl_graft.models.task_server",
        "cl_graft.models.heads",
        "cl_graft.models.pooling",
        "cl_graft.models.graftable",
    ),
    "Tasks": (
        "cl_graft.tasks.load",
        "cl_graft.tasks.task",
        "cl_graft.tasks.prompts",
        "cl_graft.tasks.shots",
        "cl_graft.tasks.encoding",
        "cl_graft.tasks.benchmark",
        "cl_graft.tasks.encoded",
        "cl_graft.tasks.generated",
        "cl_graft.tasks.generated.divided",
    ),
    "Routing and merging": (
        "cl_graft.routing.features",
        "cl_graft.routing.answers",
        "cl_graft.merging.table",
        "cl_graft.merging.rules",
        "cl_graft.merging.task_vectors",
    ),
    "Measures": (
        "cl_graft.metrics.continual",
        "cl_graft.metrics.answers",
        "cl_graft.metrics.calibration",
        "cl_graft.metrics.temperature",
        "cl_graft.metrics.task_score",
        "cl_graft.metrics.figures",
        "cl_graft.metrics.curves",
        "cl_graft.analysis.capacity",
    ),
    "Experiments": (
        "cl_graft.experiments.config",
        "cl_graft.experiments.run",
        "cl_graft.experiments.compare",
        "cl_graft.experiments.points",
        "cl_graft.experiments.forms",
        "cl_graft.experiments.tuning",
        "cl_graft.experiments.sizing",
        "cl_graft.experiments.rebuild",
        "cl_graft.experiments.questions",
        "cl_graft.experiments.predict",
        "cl_graft.experiments.add",
        "cl_graft.experiments.verify",
        "cl_graft.experiments.inspect",
        "cl_graft.experiments.capacity",
        "cl_graft.experiments.forget",
        "cl_graft.experiments.draft",
        "cl_graft.experiments.likely_labels",
    ),
    "Other tools": (
        "cl_graft.interop.export",
        "cl_graft.interop.importing",
        "cl_graft.interop.sources",
        "cl_graft.interop.sparse_tunings",
        "cl_graft.interop.classifiers",
        "cl_graft.interop.checkpoint",
        "cl_graft.interop.shira",
        "cl_graft.interop.overlay",
        "cl_graft.interop.written",
    ),
    "The report": ("cl_graft.reporting.report", "cl_graft.reporting.material"),
    "Fingerprints and randomness": ("cl_graft.fingerprint", "cl_graft.randomness"),
}
"""The modules that the API page documents, by chapter."""


def _home(thing: object, unit: str) -> str:
    home = getattr(thing, "__module__", "")
    if home.startswith("cl_graft.") and not isinstance(thing, Mapping):
        return home
    # A table: the module of its unit that defines it is the one documented here.
    return "cl_graft.localization.table" if unit == "localization" else f"cl_graft.{unit}"

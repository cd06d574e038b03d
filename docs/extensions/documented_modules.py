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
        "cl_graft.grafts.region",
        "cl_graft.grafts.selection",
        "cl_graft.grafts.graft",
        "cl_graft.grafts.bank",
        "cl_graft.inference.task_switch",
        "cl_graft.inference.mixed_batches",
        "cl_graft.inference.flat_parameters",
        "cl_graft.training.region_parameters",
        "cl_graft.grafts.model_state",
        "cl_graft.errors",
    ),
    "Files": (
        "cl_graft.storage.bank_folder",
        "cl_graft.storage.repair",
        "cl_graft.storage.graft_file",
        "cl_graft.storage.locks",
        "cl_graft.storage.disk_errors",
        "cl_graft.storage.hub",
        "cl_graft.storage.model_card",
    ),
    "The skill of a fine-tuned model": (
        "cl_graft.integrations.skill",
        "cl_graft.integrations.trainer_callback",
    ),
    "Learning a task": (
        "cl_graft.localization.grafting_settings",
        "cl_graft.training.learnable_task",
        "cl_graft.training.dense_run",
        "cl_graft.training.graft_retraining",
        "cl_graft.localization.region_search",
        "cl_graft.localization.task_gradients",
        "cl_graft.training.linear_probe",
        "cl_graft.training.passes",
        "cl_graft.training.settings",
        "cl_graft.training.fine_tuning",
        "cl_graft.training.precision",
        "cl_graft.training.activation_memory",
        "cl_graft.training.train_mode",
        "cl_graft.runtime.native_libraries",
        "cl_graft.runtime.error_context",
        "cl_graft.localization.localizer_inputs",
        "cl_graft.localization.registry",
        "cl_graft.localization.ranking",
    ),
    "Looking at regions": (
        "cl_graft.experiments.localized_task",
        "cl_graft.grafts.anatomy",
        "cl_graft.metrics.statistics",
        "cl_graft.training.regularizers",
    ),
    "Avalanche": (
        "cl_graft.strategies.grafting",
        "cl_graft.strategies.plugin",
        "cl_graft.strategies.routing",
        "cl_graft.strategies.task_training",
        "cl_graft.strategies.multi_head",
        "cl_graft.strategies.loop.budgets",
        "cl_graft.strategies.loop.text_batches",
        "cl_graft.strategies.loop.precision",
        "cl_graft.strategies.loop.divergence",
        "cl_graft.strategies.registry",
        "cl_graft.strategies.method",
        "cl_graft.strategies.strategy_inputs",
        "cl_graft.strategies.stored_bytes",
        "cl_graft.strategies.methods.merging",
        "cl_graft.strategies.methods.bounds.mixed_rows",
        "cl_graft.strategies.methods.bounds.independent",
        "cl_graft.strategies.methods.penalties.rwalk",
        "cl_graft.strategies.methods.penalties.o_lora",
        "cl_graft.strategies.methods.distillation.lwf",
        "cl_graft.strategies.methods.distillation.lfl",
        "cl_graft.strategies.methods.rehearsal.agem",
        "cl_graft.strategies.methods.rehearsal.gem",
        "cl_graft.strategies.methods.rehearsal.der",
        "cl_graft.strategies.methods.rehearsal.mir",
        "cl_graft.strategies.methods.rehearsal.cope",
        "cl_graft.strategies.methods.isolation.own_values",
        "cl_graft.strategies.methods.isolation.bitfit",
        "cl_graft.strategies.methods.isolation.adapters",
        "cl_graft.strategies.methods.isolation.prompt_tuning",
        "cl_graft.strategies.methods.isolation.lora_layers",
        "cl_graft.strategies.methods.isolation.packnet",
        "cl_graft.strategies.methods.isolation.masked_matrices",
        "cl_graft.strategies.stream_scores",
        "cl_graft.strategies.tensorboard",
    ),
    "Planning": (
        "cl_graft.experiments.memory_estimate.plan",
        "cl_graft.experiments.memory_estimate.phases",
        "cl_graft.experiments.memory_estimate.fake_model",
        "cl_graft.experiments.memory_estimate.memory_tracker",
    ),
    "Models": (
        "cl_graft.models.load",
        "cl_graft.models.task_model",
        "cl_graft.models.task_server",
        "cl_graft.models.heads",
        "cl_graft.models.token_heads",
        "cl_graft.models.text_generation",
        "cl_graft.models.label_strings",
        "cl_graft.models.graftable",
    ),
    "Tasks": (
        "cl_graft.data.load",
        "cl_graft.data.streams",
        "cl_graft.data.stream_files",
        "cl_graft.kinds.text_task",
        "cl_graft.kinds.kind",
        "cl_graft.kinds.text2text",
        "cl_graft.kinds.decoding",
        "cl_graft.kinds.messages",
        "cl_graft.kinds.answer_encoding",
        "cl_graft.kinds.prompt_encoding",
        "cl_graft.kinds.rows",
        "cl_graft.kinds.one_label",
        "cl_graft.kinds.classification",
        "cl_graft.kinds.regression",
        "cl_graft.kinds.tagging",
        "cl_graft.kinds.extractive_qa",
        "cl_graft.kinds.task_head",
        "cl_graft.kinds.task_name",
        "cl_graft.kinds.prompts",
        "cl_graft.data.few_shot",
        "cl_graft.kinds.text_encoding",
        "cl_graft.strategies.benchmark",
        "cl_graft.data.encoded_task",
        "cl_graft.data.synthetic",
        "cl_graft.data.synthetic.built_in_tasks",
        "cl_graft.data.synthetic.long_streams",
    ),
    "Routing and merging": (
        "cl_graft.inference.routing_rules",
        "cl_graft.grafts.merging.registry",
        "cl_graft.grafts.merging.rules",
        "cl_graft.grafts.merging.task_vectors",
    ),
    "Measures": (
        "cl_graft.metrics.continual",
        "cl_graft.metrics.calibration",
        "cl_graft.metrics.task_score",
        "cl_graft.metrics.span_scores",
        "cl_graft.figures.heatmaps",
        "cl_graft.figures.reliability",
        "cl_graft.figures.score_curves",
        "cl_graft.grafts.shared_coordinates",
    ),
    "Experiments": (
        "cl_graft.experiments.config.experiment_config",
        "cl_graft.experiments.config.stream_settings",
        "cl_graft.experiments.config.parts",
        "cl_graft.experiments.run",
        "cl_graft.experiments.comparison.compare",
        "cl_graft.experiments.comparison.sweep",
        "cl_graft.experiments.scenarios",
        "cl_graft.experiments.comparison.tuning",
        "cl_graft.experiments.comparison.matched_bytes",
        "cl_graft.banks.open_bank",
        "cl_graft.banks.input_texts",
        "cl_graft.banks.predict",
        "cl_graft.banks.add",
        "cl_graft.banks.verify",
        "cl_graft.banks.inspect",
        "cl_graft.banks.capacity",
        "cl_graft.banks.forget",
        "cl_graft.experiments.config.draft",
        "cl_graft.data.likely_labels",
    ),
    "Other tools": (
        "cl_graft.integrations.task_export",
        "cl_graft.integrations.task_import",
        "cl_graft.integrations.import_sources",
        "cl_graft.integrations.peft_adapter",
        "cl_graft.integrations.composable_sft",
        "cl_graft.integrations.sequence_classifier",
        "cl_graft.integrations.whole_models",
        "cl_graft.integrations.shira",
        "cl_graft.integrations.overlay",
        "cl_graft.integrations.export_record",
    ),
    "The report": ("cl_graft.reporting.page", "cl_graft.reporting.report_data"),
    "Fingerprints and randomness": ("cl_graft.grafts.hashing", "cl_graft.runtime.seeding"),
}
"""The modules that the API page documents, by chapter."""


def _home(thing: object, unit: str) -> str:
    home = getattr(thing, "__module__", "")
    if home.startswith("cl_graft.") and not isinstance(thing, Mapping):
        return home
    # A table: the module of its unit that defines it is the one documented here.
    return "cl_graft.localization.registry" if unit == "localization" else f"cl_graft.{unit}"

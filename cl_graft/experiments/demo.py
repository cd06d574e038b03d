"""The demo: built-in tasks and settings that show everything within minutes on two cores."""

from __future__ import annotations

from cl_graft.experiments.config import ExperimentConfig

__all__ = ["demo_config"]


def demo_config() -> ExperimentConfig:
    """Return the config of the demo."""
    return ExperimentConfig(
        tasks=["sentiment", "topic", "question_type"],
        strategies=["grafting", "naive", "lora", "independent"],
        shots=500,
        max_length=48,
        max_dev=120,
        max_test=300,
        steps=200,
        evaluations=2,
        mask_steps=8,
        mask_batch=64,
    )

"""Strategies and plugins for Avalanche, and the parts for writing a method of your own."""

from cl_graft.strategies.benchmark import MultiTaskText, text_model
from cl_graft.strategies.grafting_continual import GraftingContinual
from cl_graft.strategies.grafting_plugin import GraftingPlugin
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.loop.micro_batches import MicroBatches, ScaleLoss
from cl_graft.strategies.loop.steps_and_rates import (
    ClipGradient,
    RateSchedule,
    SeededLoop,
    StopAfter,
    StopDiverged,
)
from cl_graft.strategies.loop.text_batches import TextBatches
from cl_graft.strategies.method import count_bytes, count_stored, find_plugin, setting
from cl_graft.strategies.registry import build_strategy, register_strategy
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.strategies.task_training import TaskMetadata

__all__ = [
    "ClipGradient",
    "GraftingContinual",
    "GraftingPlugin",
    "KeepBest",
    "MicroBatches",
    "MultiTaskText",
    "RateSchedule",
    "ScaleLoss",
    "SeededLoop",
    "StopAfter",
    "StopDiverged",
    "StrategyInputs",
    "TaskMetadata",
    "TextBatches",
    "build_strategy",
    "count_bytes",
    "count_stored",
    "find_plugin",
    "register_strategy",
    "setting",
    "text_model",
]

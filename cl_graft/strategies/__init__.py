"""Strategies and plugins for Avalanche."""

from cl_graft.strategies.grafting import GraftingContinual
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.loop.budgets import ClipGradient, LinearDecay, SeededLoop, StopAfter
from cl_graft.strategies.loop.data_parallel import SplitBatches
from cl_graft.strategies.loop.divergence import StopDiverged
from cl_graft.strategies.loop.precision import MicroBatches, ScaleLoss
from cl_graft.strategies.loop.text_batches import TextBatches
from cl_graft.strategies.multi_head import MultiTaskText, text_model
from cl_graft.strategies.plugin import GraftingPlugin
from cl_graft.strategies.region_training import TaskMetadata

__all__ = [
    "ClipGradient",
    "GraftingContinual",
    "GraftingPlugin",
    "KeepBest",
    "LinearDecay",
    "MicroBatches",
    "MultiTaskText",
    "ScaleLoss",
    "SeededLoop",
    "SplitBatches",
    "StopAfter",
    "StopDiverged",
    "TaskMetadata",
    "TextBatches",
    "text_model",
]

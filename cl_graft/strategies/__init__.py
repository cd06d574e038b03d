"""Strategies and plugins for Avalanche."""

from cl_graft.strategies.batches import TextBatches
from cl_graft.strategies.best_step import KeepBest
from cl_graft.strategies.data_parallel import SplitBatches
from cl_graft.strategies.grafting import GraftingContinual
from cl_graft.strategies.multitask import MultiTaskText, heads_for
from cl_graft.strategies.plugin import GraftingPlugin
from cl_graft.strategies.precision import MicroBatches, ScaleLoss
from cl_graft.strategies.session import TaskFacts
from cl_graft.strategies.steps import ClipGradient, LinearDecay, SeededLoop, StopAfter
from cl_graft.strategies.watch import StopDiverged

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
    "TaskFacts",
    "TextBatches",
    "heads_for",
]

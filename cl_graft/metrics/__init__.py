"""Measures of a stream: pure functions on predictions and on the matrix R[i][j] of scores.

Figures are in `cl_graft.lab.figures`, Avalanche's metric plugins in
`cl_graft.strategies.stream_scores`; neither is imported here.
"""

from cl_graft.metrics.calibration import (
    ReliabilityBins,
    Temperature,
    ece,
    fit_temperature,
    reliability_bins,
)
from cl_graft.metrics.continual import (
    ScoreMatrix,
    accuracy_over_stream,
    average_accuracy,
    backward_transfer,
    backward_transfer_over_stream,
    forgetting,
    forward_transfer,
    forward_transfer_over_stream,
    gain_over_isolated,
)
from cl_graft.metrics.task_score import (
    METRICS,
    Metric,
    agreement,
    register_metric,
    score,
    task_loss,
)

__all__ = [
    "METRICS",
    "Metric",
    "ReliabilityBins",
    "ScoreMatrix",
    "Temperature",
    "accuracy_over_stream",
    "agreement",
    "average_accuracy",
    "backward_transfer",
    "backward_transfer_over_stream",
    "ece",
    "fit_temperature",
    "forgetting",
    "forward_transfer",
    "forward_transfer_over_stream",
    "gain_over_isolated",
    "register_metric",
    "reliability_bins",
    "score",
    "task_loss",
]

"""What a region, a graft or a run is like: pure functions, one idea a file, no Avalanche."""

from cl_graft.analysis.anatomy import Anatomy, anatomy
from cl_graft.analysis.bound import generalization_bound, variance_bound
from cl_graft.analysis.capacity import (
    claim_counts,
    drop_threshold,
    expected_lost,
    owned_in_orders,
    predicted_lost,
    task_that_loses,
)
from cl_graft.analysis.gain import relative_gain
from cl_graft.analysis.interpolation import interpolated, wise_curve
from cl_graft.analysis.lottery import only
from cl_graft.analysis.ranks import average_ranks, critical_difference
from cl_graft.analysis.significance import (
    LEAST_SAMPLES,
    holm,
    mean_interval,
    paired_t_test,
    spearman,
)
from cl_graft.analysis.stability import Stability, stability, without_a_share
from cl_graft.analysis.sweep import sparsity_sweep
from cl_graft.analysis.trajectory import along, self_labelled

__all__ = [
    "LEAST_SAMPLES",
    "Anatomy",
    "Stability",
    "along",
    "anatomy",
    "average_ranks",
    "claim_counts",
    "critical_difference",
    "drop_threshold",
    "expected_lost",
    "generalization_bound",
    "holm",
    "interpolated",
    "mean_interval",
    "only",
    "owned_in_orders",
    "paired_t_test",
    "predicted_lost",
    "relative_gain",
    "self_labelled",
    "sparsity_sweep",
    "spearman",
    "stability",
    "task_that_loses",
    "variance_bound",
    "wise_curve",
    "without_a_share",
]

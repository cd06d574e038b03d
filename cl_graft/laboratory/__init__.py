"""The laboratory: the experiments of the grafting paper and of the SAM paper, one command each."""

from cl_graft.laboratory.run import Outcome, experiment_config, run_experiment
from cl_graft.laboratory.table import EXPERIMENTS, SCALES, Experiment, find_experiment

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Experiment",
    "Outcome",
    "experiment_config",
    "find_experiment",
    "run_experiment",
]

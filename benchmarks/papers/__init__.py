"""The experiments of the grafting paper and of the SAM paper, and what their results say.

They are no part of the installed package: `python benchmarks/paper_experiment.py` runs them.
"""

from papers.experiments import EXPERIMENTS, SCALES, Experiment, find_experiment
from papers.run import Outcome, experiment_config, run_experiment

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Experiment",
    "Outcome",
    "experiment_config",
    "find_experiment",
    "run_experiment",
]

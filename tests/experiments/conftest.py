"""One tiny comparison, run once a session and only read by tests."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_config(tiny_bert: Path):
    from configs import config_with

    return config_with(
        {
            "tasks": ["sentiment", "topic", "question_type"],
            "model": str(tiny_bert),
            "shots": 16,
            "max_length": 24,
            "max_test": 40,
            # 32 rows of sentiment are 4 batches: the last step is also the last of an epoch.
            "steps": 8,
            "batch_size": 8,
            "evaluations": 1,
            "density": 0.01,
            "mask_steps": 2,
            "mask_batch": 16,
        }
    )


@pytest.fixture(scope="session")
def comparison(tiny_config, tmp_path_factory: pytest.TempPathFactory):
    from cl_graft.experiments.comparison.compare import compare

    return compare(tiny_config, out=tmp_path_factory.mktemp("comparison"))

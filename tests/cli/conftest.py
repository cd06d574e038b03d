"""One small comparison, made by the command line itself, that the tests of the CLI look at."""

from pathlib import Path

import pytest
from configs import sets
from tiny_runs import Told, cl_graft

SETTINGS = (
    "--shots", "8", "--steps", "4", "--max-length", "24", "--max-test", "20", "--density", "0.01",
    "--device", "cpu", *sets({"mask_steps": 2, "mask_batch": 16, "evaluations": 1}),
)  # fmt: skip


@pytest.fixture(scope="session")
def settings() -> tuple[str, ...]:
    return SETTINGS


@pytest.fixture(scope="session")
def compared(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """The folder of a comparison and what the command answered."""
    out = tmp_path_factory.mktemp("compared") / "out"
    told = cl_graft(
        "compare", "--tasks", "scope,topic", "--model", tiny_bert, *SETTINGS, "--out", out
    )
    assert told.code == 0, told
    return out, told


@pytest.fixture(scope="session")
def bank(compared: tuple[Path, Told]) -> Path:
    return compared[0] / "grafting" / "seed0" / "bank"

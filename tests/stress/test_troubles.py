"""NaN, too little memory and a full disk in the second task: told, and gone on to the same bits."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmark_scripts import run_script
from tiny_checkpoint import QUICK
from tiny_runs import cl_graft, file_hashes

from cl_graft.settings import to_nested
from cl_graft.storage import load_bank

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up in Linux's /proc"),
]

SETTINGS = {
    **QUICK,
    "stream.tasks": ["scope", "topic"],
    "fine_tuning.steps": 6,
    "grafting.localizer": "learned_mask",  # a whole dense run and gradients: every phase has steps
    "grafting.mask_steps": 4,
}
PHASES = {
    "dense": "dense fine-tuning",
    "localize": "localization",
    "train": "region training",
    "evaluate": "evaluation",
}
SAID = {
    "nan": ("nan", "'topic'"),
    "memory": ("out of memory in", "'topic'", "--resume"),
    "disk": ("no space is left there", "go on with: cl-graft run --resume"),
}


@pytest.fixture(scope="module")
def config(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("troubles") / "stream.yaml"
    path.write_text(json.dumps(to_nested({**SETTINGS, "model.name": str(tiny_bert)})))
    return path


@pytest.fixture(scope="module")
def undisturbed(config: Path) -> dict[str, str]:
    assert cl_graft("run", config, "--out", config.parent / "undisturbed").code == 0
    return file_hashes(config.parent / "undisturbed" / "grafting" / "seed0" / "bank")


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("trouble", SAID)
def test_a_run_in_trouble_says_what_and_where_and_goes_on_to_the_same_bits(
    trouble, phase, config, undisturbed, tmp_path
):
    step = 1 if phase == "evaluate" else 2
    words = (trouble, phase, step, "run", config, "--out", tmp_path / "out")
    told = run_script("troubled.py", *words, code=2, COLUMNS="600")
    bank = tmp_path / "out" / "grafting" / "seed0" / "bank"
    for said in (*SAID[trouble], *([PHASES[phase]] if trouble != "disk" else [])):
        assert said in told.stderr.lower()
    assert len(load_bank(bank)) == (2 if phase == "evaluate" else 1)
    assert cl_graft("run", "--resume", tmp_path / "out").code == 0
    assert file_hashes(bank) == undisturbed

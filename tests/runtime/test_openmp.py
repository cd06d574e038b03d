"""OpenMP's threads sleep soon when they wait, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

from cl_graft.runtime.openmp import SPIN_COUNT

SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def _spin_count(program: str, **given: str) -> str:
    """Return what a new process sees as its spin count after running a program."""
    env = {name: value for name, value in os.environ.items() if name not in SETTINGS} | given
    shown = f"{program}\nimport os\nprint(os.environ.get('GOMP_SPINCOUNT', 'none'))"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", shown],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


@pytest.mark.parametrize(
    "module", ["cl_graft", "cl_graft.cli", "cl_graft.experiments.engines.worker"]
)
def test_the_limit_is_set_before_torch_is_loaded(module: str) -> None:
    # OpenMP reads it only then.
    program = (
        "import importlib.abc, os, sys\n"
        "class Seen(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch' and 'SEEN' not in os.environ:\n"
        "            os.environ['SEEN'] = os.environ.get('GOMP_SPINCOUNT', 'none')\n"
        "sys.meta_path.insert(0, Seen())\n"
        f"import {module}\n"
        "assert 'torch' in sys.modules\n"
        "os.environ['GOMP_SPINCOUNT'] = os.environ['SEEN']"
    )
    assert _spin_count(program) == str(SPIN_COUNT)


@pytest.mark.parametrize(
    ("given", "seen"),
    [({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "none")],
)
def test_a_setting_of_the_users_own_stays(given: dict[str, str], seen: str) -> None:
    assert _spin_count("import cl_graft", **given) == seen


def test_nothing_is_set_where_torch_has_read_its_settings() -> None:
    assert _spin_count("import torch\nimport cl_graft") == "none"

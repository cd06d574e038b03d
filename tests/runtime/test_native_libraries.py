"""OpenMP's threads sleep soon, and torchvision imports whether or not it matches torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from warm_processes import run_warm

from cl_graft.runtime.native_libraries import SPIN_COUNT

SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in SETTINGS}

# Ends a program where it begins to import torch: OpenMP reads its settings only then.
AT_TORCH = """
import importlib.abc, os, sys

class Seen(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT", "none"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Seen())
import cl_graft, torch
"""

MODULE = Path(__file__).parents[2] / "cl_graft" / "runtime" / "native_libraries.py"
# The module alone: importing the package would have installed the finder already.
DECLARE = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("native", {str(MODULE)!r})
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
before = len(sys.meta_path)
native.declare_missing_operators()
native.declare_missing_operators()
"""
# What the Python half of every torchvision asks for.
REGISTER = """
import torch
for name in ("nms", "qnms"):
    torch.library.register_fake(f"torchvision::{name}", lambda dets, scores, iou_threshold: dets)
"""
# Stands for a compiled extension: it defines the operators, as C++ would.
DEFINE = """
import torch
own = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    own.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, str(SPIN_COUNT)),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "none"),
    ],
)
def test_the_limit_is_set_before_torch_is_loaded_unless_the_user_set_one(given, seen):
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AT_TORCH],
        env=ENVIRONMENT | given,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == seen


def test_nothing_is_set_where_torch_has_read_its_settings():
    code = "import os, torch, cl_graft; print(os.environ.get('GOMP_SPINCOUNT', 'none'))"
    ran = run_warm(["-c", code], env=ENVIRONMENT, imported="torch")
    assert ran.stdout.strip() == "none", ran.stderr


@pytest.mark.parametrize(
    ("extension", "declared"),
    [("", "('nms', 'qnms')"), (DEFINE, "()"), (DEFINE.replace(', "qnms"', ","), "('qnms',)")],
)
def test_what_the_extension_lacks_is_declared_and_nothing_else(tmp_path, extension, declared):
    package = tmp_path / "torchvision"  # imports as torchvision does
    package.mkdir()
    (package / "__init__.py").write_text(
        "from . import extension\nfrom torchvision import _meta_registrations\n"
    )
    (package / "extension.py").write_text(extension)
    (package / "_meta_registrations.py").write_text(REGISTER)

    def run(code: str) -> subprocess.CompletedProcess[str]:
        program = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{code}"
        return run_warm(["-c", program], env=os.environ, imported="torch")

    alone = run("import torchvision")
    assert ("nms does not exist" in alone.stderr) == (declared != "()")
    answer = run(DECLARE + "import torchvision\nprint(tuple(native._declarations))\n")
    assert answer.stdout.strip() == declared, answer.stderr

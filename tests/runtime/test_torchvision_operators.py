"""torchvision, Avalanche and transformers import whether or not torchvision matches torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from warm_processes import run_warm

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "cl_graft" / "runtime" / "torchvision_operators.py"
# The module alone: importing the package would have installed the finder already.
DECLARE = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("operators", {str(MODULE)!r})
operators = importlib.util.module_from_spec(spec)
spec.loader.exec_module(operators)
operators.declare_missing_operators()
"""
ASK = "import torchvision\nprint(operators.list_declared_operators())\n"
# What the Python half of every torchvision asks for.
REGISTER = """
import torch
@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold):
    return dets
@torch.library.register_fake("torchvision::qnms")
def qnms(dets, scores, iou_threshold):
    return dets
"""
# Stands for a compiled extension: it defines the operators, as C++ would.
DEFINE = """
import torch
own = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    own.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def program(code: str, first_on_path: Path | None) -> str:
    paths = [str(path) for path in (first_on_path, ROOT) if path is not None]
    return f"import sys\nsys.path[:0] = {paths!r}\n{code}"


def python(code: str, *, first_on_path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own that has imported torch."""
    return run_warm(["-c", program(code, first_on_path)], env=os.environ, imported="torch")


def stand_in(folder: Path, *, extension: str) -> Path:
    """Make a package that imports as torchvision does, and return its parent.

    Args:
        folder: Where the package goes.
        extension: What loading its compiled extension does, in Python.
    """
    package = folder / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from . import extension\nfrom torchvision import _meta_registrations\n"
    )
    (package / "extension.py").write_text(extension)
    (package / "_meta_registrations.py").write_text(REGISTER)
    return folder


def test_waiting_imports_neither_torchvision_nor_torch_and_is_done_once():
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys\n{DECLARE}before = len(sys.meta_path)\n"
            "operators.declare_missing_operators()\n"
            "print(len(sys.meta_path) - before, {'torch', 'torchvision'} & set(sys.modules))",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.strip() == "0 set()", answer.stderr


@pytest.mark.parametrize(
    ("extension", "declared"),
    [("", "('nms', 'qnms')"), (DEFINE, "()"), (DEFINE.replace(', "qnms"', ","), "('qnms',)")],
)
def test_what_the_extension_lacks_is_declared_and_nothing_else(tmp_path, extension, declared):
    folder = stand_in(tmp_path, extension=extension)
    alone = python("import torchvision", first_on_path=folder)
    assert ("nms does not exist" in alone.stderr) == (declared != "()")
    answer = python(DECLARE + ASK, first_on_path=folder)
    assert answer.stdout.strip() == declared, answer.stderr

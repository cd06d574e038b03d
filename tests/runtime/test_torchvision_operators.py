"""torchvision, Avalanche and transformers import whether or not torchvision matches torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from slow_cases import slow
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


@pytest.mark.parametrize(
    "statement",
    [
        "import torchvision",
        # Every test of strategies and models imports these so: conftest.py imports the package.
        *slow("import avalanche", "from transformers import BertModel"),
    ],
)
def test_what_needs_torchvision_imports_after_the_package(statement):
    answer = python(f"import cl_graft\n{statement}")
    assert answer.returncode == 0, answer.stderr


def test_the_declaration_is_made_exactly_where_torchvision_fails_without_it():
    alone = python("import torchvision")
    declared = python(DECLARE + ASK).stdout.strip()
    if alone.returncode:
        assert "torchvision::nms does not exist" in alone.stderr
        assert declared == "('nms', 'qnms')"
    else:
        assert declared == "()"


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


def test_operators_are_declared_where_the_extension_does_not_load(tmp_path):
    folder = stand_in(tmp_path, extension="")
    assert "nms does not exist" in python("import torchvision", first_on_path=folder).stderr
    answer = python(DECLARE + ASK, first_on_path=folder)
    assert answer.stdout.strip() == "('nms', 'qnms')", answer.stderr


def test_nothing_is_declared_where_the_extension_defines_the_operators(tmp_path):
    folder = stand_in(tmp_path, extension=DEFINE)
    answer = python(DECLARE + ASK, first_on_path=folder)
    assert answer.stdout.strip() == "()", answer.stderr


def test_only_what_the_extension_lacks_is_declared(tmp_path):
    folder = stand_in(tmp_path, extension=DEFINE.replace(', "qnms"', ","))
    answer = python(DECLARE + ASK, first_on_path=folder)
    assert answer.stdout.strip() == "('qnms',)", answer.stderr


@pytest.mark.parametrize("name", ["nms", "qnms"])
def test_a_declared_operator_has_its_schema_and_no_kernel(tmp_path, name):
    folder = stand_in(tmp_path, extension="")
    answer = python(
        DECLARE + f"import torch, torchvision\noperator = torch.ops.torchvision.{name}\n"
        "print(operator.default._schema)\noperator(torch.rand(1, 4), torch.rand(1), 0.5)",
        first_on_path=folder,
    )
    schema = f"torchvision::{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    assert answer.stdout.strip() == schema
    assert "NotImplementedError" in answer.stderr

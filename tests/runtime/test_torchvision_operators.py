"""torchvision, Avalanche and transformers import whether or not torchvision matches torch."""

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from warm_processes import run_warm

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "cl_graft" / "runtime" / "torchvision_operators.py"
# The module alone: importing the package would have declared everything already.
DECLARE = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("operators", {str(MODULE)!r})
operators = importlib.util.module_from_spec(spec)
spec.loader.exec_module(operators)
declare_missing_operators = operators.declare_missing_operators
declared = declare_missing_operators()
"""


def program(code: str, first_on_path: Path | None) -> str:
    paths = [str(path) for path in (first_on_path, ROOT) if path is not None]
    return f"import sys\nsys.path[:0] = {paths!r}\n{code}"


def python(code: str, *, first_on_path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own that has imported torch."""
    return run_warm(["-c", program(code, first_on_path)], env=os.environ, imported="torch")


def stand_in(folder: Path, *, extension: Path | None) -> Path:
    """Make a package named torchvision around a compiled extension, and return its parent."""
    package = folder / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("")
    if extension is not None:
        shutil.copy(extension, package / f"_C{''.join(extension.suffixes)}")
    return folder


@pytest.mark.parametrize(
    "statement",
    [
        "import torchvision",
        "import avalanche",
        "from transformers import BertModel",
    ],
)
def test_what_needs_torchvision_imports_after_the_package(statement):
    answer = python(f"import cl_graft\n{statement}")
    assert answer.returncode == 0, answer.stderr


def test_the_declaration_is_made_exactly_where_torchvision_fails_without_it():
    alone = python("import torchvision")
    declared = python(DECLARE + "print(declared)").stdout.strip()
    if alone.returncode:
        assert "torchvision::nms does not exist" in alone.stderr
        assert declared == "('nms', 'qnms')"
    else:
        assert declared == "()"


def test_declaring_imports_no_torchvision_and_a_second_call_changes_nothing(tmp_path):
    folder = stand_in(tmp_path, extension=None)
    answer = python(
        DECLARE + "print(declared, declare_missing_operators(), 'torchvision' in sys.modules)",
        first_on_path=folder,
    )
    assert answer.stdout.strip() == "('nms', 'qnms') () False", answer.stderr


def test_an_extension_that_cannot_be_loaded_counts_as_missing(tmp_path):
    folder = stand_in(tmp_path, extension=None)
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (folder / "torchvision" / f"_C{suffix}").write_bytes(b"not a library")
    answer = python(DECLARE + "print(declared)", first_on_path=folder)
    assert answer.stdout.strip() == "('nms', 'qnms')", answer.stderr


def test_nothing_is_declared_where_the_compiled_extension_loads(tmp_path):
    loadable = importlib.util.find_spec("torch._C")
    assert loadable is not None
    assert loadable.origin is not None
    folder = stand_in(tmp_path, extension=Path(loadable.origin))
    answer = python(DECLARE + "print(declared)", first_on_path=folder)
    assert answer.stdout.strip() == "()", answer.stderr


def test_nothing_is_declared_where_torchvision_is_absent(tmp_path):
    for installed in Path(torch.__file__).parents[1].iterdir():
        if not installed.name.startswith("torchvision"):
            (tmp_path / installed.name).symlink_to(installed)
    answer = subprocess.run(
        [sys.executable, "-S", "-c", program(DECLARE + "print(declared)", tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.strip() == "()", answer.stderr


@pytest.mark.parametrize("name", ["nms", "qnms"])
def test_a_declared_operator_has_its_schema_and_no_kernel(tmp_path, name):
    folder = stand_in(tmp_path, extension=None)
    answer = python(
        DECLARE + f"import torch\noperator = torch.ops.torchvision.{name}\n"
        "print(operator.default._schema)\noperator(torch.rand(1, 4), torch.rand(1), 0.5)",
        first_on_path=folder,
    )
    schema = f"torchvision::{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    assert answer.stdout.strip() == schema
    assert "NotImplementedError" in answer.stderr

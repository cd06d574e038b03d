"""The notebooks are stored as their readers see them, by `make notebooks`."""

import json
import re

import nbformat
import pytest
from docs.pages import DOCS
from nbclient import NotebookClient

NOTEBOOKS = sorted((DOCS / "examples").glob("*.ipynb"))


def outputs(path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        yield from cell.get("outputs", [])


def test_there_are_two_and_the_index_leads_to_them():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 2
    assert all(f"examples/{path.stem}\n" in index for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_been_run_from_top_to_bottom(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    counts = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_pictures_and_neither_errors_nor_warnings(path):
    kinds = [output["output_type"] for output in outputs(path)]
    pictures = [output for output in outputs(path) if "image/png" in output.get("data", {})]
    assert len(pictures) >= 2
    assert "error" not in kinds
    assert not any(output.get("name") == "stderr" for output in outputs(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_names_no_path_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 500_000
    assert not re.search(r"(?<![\w.])/(root|work|tmp|home)/", text)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_with_the_code_of_today(path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": path.parent}}).execute()

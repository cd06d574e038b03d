"""Notebooks of the examples, run anew, so that what a page shows is what the package does.

They run side by side before pages are read. Sphinx reads them in one process, one after the other.
`-D run_notebooks=0` shows them as they are stored.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient


def run_notebook(path: Path) -> str:
    """Return a notebook with the outputs of a new run, as JSON.

    Raises:
        CellExecutionError: A cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": path.parent}}).execute()
    return nbformat.writes(notebook)


def setup(app: Any) -> dict[str, object]:
    """Register with Sphinx: run the notebooks, and give their pages the new outputs."""
    ran: dict[str, str] = {}

    def run(app: Any) -> None:
        if app.config.run_notebooks:
            paths = sorted(Path(app.srcdir).glob("examples/*.ipynb"))
            with ThreadPoolExecutor(len(paths)) as pool:
                pages = (app.env.path2doc(str(path)) for path in paths)
                ran.update(zip(pages, pool.map(run_notebook, paths), strict=True))

    def replace(app: Any, page: str, source: list[str]) -> None:
        del app
        source[0] = ran.get(page, source[0])

    app.add_config_value("run_notebooks", True, "env", types=(bool,))
    app.connect("builder-inited", run)
    app.connect("source-read", replace)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

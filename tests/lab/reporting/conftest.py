"""One small comparison, and its report; tests only read them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import QUICK


@pytest.fixture(scope="session")
def compared(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison of four strategies with three seeds."""
    from configs import config_with

    from cl_graft.lab.experiments.comparison.compare import compare

    settings = {
        **QUICK,
        "model": str(tiny_bert),
        "tasks": ["scope", "topic", "entailment"],
        "strategies": ["naive", "independent", "ewc", "grafting"],
        "seeds": [0, 1, 2],
        "avoid_owned": False,
    }

    out = tmp_path_factory.mktemp("compared") / "first"
    return compare(config_with(settings), out=out, started_by="cl-graft compare first.yaml").out


@pytest.fixture(scope="session")
def report(compared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its report."""
    from cl_graft.lab.reporting.page import make_report

    return make_report([compared], out=tmp_path_factory.mktemp("report") / "out").page.parent


@pytest.fixture(scope="session")
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report that is opened: that of CL_GRAFT_RUNS, if it names a folder."""
    from cl_graft.lab.reporting.page import make_report

    if not (runs := os.environ.get("CL_GRAFT_RUNS")):
        return request.getfixturevalue("report")
    return make_report([Path(runs)], out=tmp_path_factory.mktemp("shown") / "out").page.parent


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium: that of playwright, or the one that CL_GRAFT_CHROMIUM names."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        program = os.environ.get("CL_GRAFT_CHROMIUM") or playwright.chromium.executable_path
        if not Path(program).is_file():
            pytest.skip("there is no Chromium (CL_GRAFT_CHROMIUM is not set)")
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()

"""The log of a run in TensorBoard itself."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from configs import config_with
from tiny_runs import QUICK

from cl_graft.lab.experiments.comparison.compare import compare

SECONDS = 60_000.0
"""In milliseconds: TensorBoard starts slowly on a busy machine."""


@pytest.fixture(scope="module")
def logs(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs of one strategy with two seeds."""
    seeds = {"strategies": ["grafting"], "seeds": [0, 1], "tasks": ["sentiment", "topic"]}
    config = config_with({**QUICK, **seeds, "model": str(tiny_bert)})
    return compare(config, out=tmp_path_factory.mktemp("logs")).out / "tensorboard"


@pytest.fixture(scope="module")
def address(logs: Path) -> Iterator[str]:
    command = ["tensorboard.main", "--logdir", str(logs), "--port", "0"]
    served = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", *command, "--host", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert served.stderr is not None
    found = None
    for line in served.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
            break
    assert found
    yield found[0]
    served.terminate()
    served.wait()
    served.stderr.close()


@pytest.mark.slow
def test_tensorboard_shows_the_scalars_of_runs(browser: Any, address):
    opened = browser.new_page(viewport={"width": 1600, "height": 4000})
    opened.goto(f"{address}#timeseries")
    for text in ("grafting-seed0", "cost", "dense", "localization", "stream", "train"):
        opened.get_by_text(text, exact=False).first.wait_for(timeout=SECONDS, state="attached")
    opened.close()

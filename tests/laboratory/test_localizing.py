"""One task is localized: the graft file answers as the table says, and pictures are there."""

import json

import pytest
from typer.testing import CliRunner

from cl_graft.cli import app
from cl_graft.experiments.cache import DirectoryCache
from cl_graft.experiments.config import load_config
from cl_graft.laboratory.bench import Bench
from cl_graft.store import load_graft

SETS = ("shots=8", "steps=4", "evaluations=1", "max_length=24", "max_dev=16", "max_test=24")


def test_a_task_is_localized_into_a_graft_file_numbers_and_pictures(tiny_bert, tmp_path):
    sets = [f"model={tiny_bert}", "mask_steps=2", "mask_batch=16", *SETS]
    asked = ["localize", "sentiment", "--density", "0.01", "--out", str(tmp_path), "--json"]
    asked += [word for value in sets for word in ("--set", value)]
    done = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert said["coordinates"] == numbers["coordinates"]
    scores = {row["method"]: row["mean"] for row in said["rows"] if row["measure"] == "score"}
    assert set(scores) == {"fine-tuning", "graft", "re-trained graft"}
    assert sum(row["mean"] for row in numbers["anatomy"]) == pytest.approx(1.0)
    for name in ("densities", "anatomy", "reliability-fine-tuning", "reliability-graft"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000, name

    config = load_config(None, ["tasks=[sentiment]", "density=0.01", *sets])
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path / "cache"))
    task = bench.problem(0)
    stored = load_graft(tmp_path / "graft.safetensors", expect=bench.identity.fingerprint)
    assert stored.task == "sentiment"
    assert len(stored.graft.region) == said["coordinates"]
    head = {name: stored.head[name.rpartition("heads.0.")[2]] for name in task.head}
    assert bench.graft_answers(0, stored.graft, head).score == scores["graft"]

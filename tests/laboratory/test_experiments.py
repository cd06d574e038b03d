"""Every experiment of both papers runs at smoke scale, and goes on where it stopped."""

import json
import math

import pytest

from cl_graft.errors import InputError
from cl_graft.laboratory import EXPERIMENTS, SCALES, experiment_config, run_experiment


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all, so that they share the cache of dense runs."""
    return tmp_path_factory.mktemp("laboratory")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_at_smoke_scale_and_leaves_json_table_and_picture(
    name, folder, tiny_bert, tiny_gpt2
):
    experiment = EXPERIMENTS[name]
    model = tiny_gpt2 if experiment.settings.get("family") == "causal_lm" else tiny_bert
    seeds = [0, 1] if experiment.conclude is not None else [0]
    outcome = run_experiment(name, out=folder, scale="smoke", seeds=seeds, sets=[f"model={model}"])
    stored = json.loads((outcome.folder / "results.json").read_text())
    assert stored["rows"]
    assert stored["source"] == experiment.source
    assert all(math.isfinite(row["mean"]) for row in stored["rows"])
    assert any(row["measure"] == experiment.measure for row in stored["rows"])
    assert outcome.table in (outcome.folder / "table.md").read_text()
    assert (outcome.folder / "picture.png").stat().st_size > 5_000


def test_cells_that_are_done_are_not_run_again_and_other_settings_are_refused(
    folder, tiny_bert, monkeypatch
):
    chosen = {"out": folder, "scale": "smoke", "sets": [f"model={tiny_bert}"]}
    first = run_experiment("sam_table4", seeds=[0], **chosen)
    monkeypatch.setattr("cl_graft.laboratory.run.Bench", None)
    again = run_experiment("sam_table4", seeds=[0], **chosen)
    assert again.rows == first.rows
    chosen["sets"] = [*chosen["sets"], "steps=5"]
    with pytest.raises(InputError, match="other settings"):
        run_experiment("sam_table4", seeds=[0], **chosen)


def test_unknown_names_are_answered_with_the_nearest_one(tmp_path):
    with pytest.raises(InputError, match="did you mean 'table1'"):
        run_experiment("tabel1", out=tmp_path)
    with pytest.raises(InputError, match="unknown scale"):
        run_experiment("table1", out=tmp_path, scale="huge")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_settings_of_every_scale_are_a_config(name, scale):
    config = experiment_config(EXPERIMENTS[name], scale)
    assert config.tasks
    if scale == "paper" and name.startswith("table") and name not in ("table5", "table9"):
        assert (config.shots, config.density, config.mask_steps) == (4096, 1e-4, 100)

"""Every experiment of both papers runs at smoke scale, and goes on where it stopped."""

import json
import math
import shutil
from pathlib import Path

import pytest
from benchmark_scripts import run_script
from papers import EXPERIMENTS, SCALES, experiment_config, run_experiment
from papers.claims import CLAIMS, judge
from papers.stored import read_stored
from slow_cases import slow

from cl_graft.errors import InputError
from cl_graft.localization.paper_mask import paper_mask

pytestmark = pytest.mark.usefixtures("one_penalty")

# What one cell of built-in tasks cannot have: several seeds, and the real tasks of a claim.
NOT_AT_SMOKE_SCALE = (
    *("over several seeds", "pair", "gains 5 points", "gains 2 points", "below 0.2"),
    *("few thousand rows", "region of mrpc", "region of qqp", "no share of the gain"),
)
FAST = ("table1", "table3", "theorem_d2", "majority_gain", "gradient_share", "sam_fig3")
"""One of most modules; tests below and those of a module run fig8, sam_table2 and more."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all, so that they share the cache of dense runs."""
    return tmp_path_factory.mktemp("papers")


@pytest.mark.parametrize(
    "name", [*FAST, *slow(*(name for name in EXPERIMENTS if name not in FAST))]
)
def test_an_experiment_runs_at_smoke_scale_and_leaves_json_table_and_picture(
    name, folder, tiny_bert, tiny_gpt2, monkeypatch
):
    monkeypatch.setattr("papers.sub_skills._DRAWS", 1)  # a head is fitted to each part of each
    monkeypatch.setattr("papers.grafts._FISH_ROWS", 32)  # their gradients are taken one by one
    experiment = EXPERIMENTS[name]
    model = tiny_gpt2 if experiment.settings.get("model.family") == "causal_lm" else tiny_bert
    seeds = [0, 1, 2] if experiment.conclude is not None else [0]
    outcome = run_experiment(
        name, out=folder, scale="smoke", seeds=seeds, sets=[f"model.name={model}"]
    )
    stored = json.loads((outcome.folder / "results.json").read_text())
    assert stored["rows"]
    assert stored["source"] == experiment.source
    assert all(math.isfinite(row["mean"]) for row in stored["rows"])
    assert any(row["measure"] == experiment.measure for row in stored["rows"])
    assert outcome.table in (outcome.folder / "table.md").read_text()
    assert (outcome.folder / "picture.png").stat().st_size > 5_000
    result = read_stored(outcome.folder / "results.json")
    assert result.command.startswith(f"python benchmarks/paper_experiment.py {name} --scale smoke")
    assert str(folder) not in (outcome.folder / "results.json").read_text()
    for claim in CLAIMS:
        if claim.experiments == (name,):
            verdict = judge(claim, {name: result.view})
            decided = verdict.holds is not None
            assert decided or any(part in verdict.ours for part in NOT_AT_SMOKE_SCALE), verdict


@pytest.mark.parametrize("name", ["table1", *slow("table7", "fig8")])
def test_an_experiment_asks_by_prompts(name, tiny_bert, tmp_path):
    sets = [f"model.name={tiny_bert}", "model.family=masked_lm"]
    sets += ["stream.tasks=[scope, answered]"]
    outcome = run_experiment(name, out=tmp_path, scale="smoke", sets=sets)
    assert all(math.isfinite(row.mean) for row in outcome.rows)
    assert "with prompts" in read_stored(outcome.folder / "results.json").setting


@pytest.mark.parametrize("name", ["sam_fig3", *slow("table1", "table7", "region_rates")])
def test_an_experiment_runs_by_the_papers_settings_at_small_sizes(name, tiny_roberta, tmp_path):
    small = (
        "stream.tasks=[scope, answered] stream.shots=8 fine_tuning.steps=3 "
        "stream.max_test=12 stream.max_length=24 grafting.mask_steps=2 grafting.mask_batch=16 "
        "grafting.density=0.01 model.device=cpu"
    )
    sets = [*small.replace(", ", ",").split(), f"model.name={tiny_roberta}"]
    outcome = run_experiment(name, out=tmp_path, scale="paper", seeds=[0], sets=sets)
    assert all(math.isfinite(row.mean) for row in outcome.rows)
    config = json.loads((outcome.folder / "results.json").read_text())["config"]
    assert (config["model"]["family"], config["training"]["grid"]) == (
        ("encoder", False) if name == "sam_fig3" else ("masked_lm", True)
    )


@pytest.mark.parametrize(
    ("name", "base"), [("fig11", 0.001), *slow(("fig8", 0.0), ("fig12", 0.01))]
)
def test_regions_of_several_tasks_follow_the_published_mask(
    name, base, tiny_bert, tmp_path, monkeypatch
):
    bases = []

    def counted(inputs, *, base_density, **more):
        bases.append(base_density)
        return paper_mask(inputs, base_density=base_density, **more)

    monkeypatch.setattr("papers.multitask.paper_mask", counted)
    sets = [f"model.name={tiny_bert}", "grafting.localizer=paper_mask", "grafting.density=0.01"]
    outcome = run_experiment(name, out=tmp_path, scale="smoke", sets=sets)
    assert bases == pytest.approx([base] * 3)
    assert sum(row.measure == "overlap" for row in outcome.rows) == 9


@pytest.mark.parametrize(
    ("name", "sets", "said"),
    [
        ("table1", "grafting.dropout=true", "dropout is a setting of streams"),
        ("table1", "stream.scenario=class", "scenario is a setting of streams"),
        ("sam_table5", None, "sam_table5 tests cells against chance, of which 1 say nothing"),
        ("fig7c", "stream.tasks=scope", "scope alone: .* ask a second task"),
        ("fig11", "grafting.localizer=fish", "fish does not start from a γ_base"),
        ("fig15", "grafting.localizer=path_integral", "dense run"),
        ("fig8", "grafting.localizer=path_integral", "dense run"),
        ("table7", None, "LoRA needs the package peft"),
        ("sam_table1", None, "LoRA needs the package peft"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_trained(
    name, sets, said, tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.setattr("papers.bench.fine_tune_task", None)
    monkeypatch.setattr("papers.peers.find_spec", lambda name: None)
    asked = [f"model.name={tiny_bert}", *([sets] if sets else [])]
    with pytest.raises(InputError, match=said):
        run_experiment(name, out=tmp_path, scale="smoke", seeds=[0], sets=asked)


def test_cells_that_are_done_are_not_run_again_and_other_settings_or_versions_are_refused(
    folder, tiny_bert, monkeypatch
):
    chosen = {"out": folder, "scale": "smoke", "sets": [f"model.name={tiny_bert}"]}
    first = run_experiment("sam_table4", seeds=[0], **chosen)
    monkeypatch.setattr("papers.run.Bench", None)
    again = run_experiment("sam_table4", seeds=[0], **chosen)
    assert again.rows == first.rows
    file = next(folder.glob("*/cell0.json"))
    file.with_name("cell1.json").write_bytes(file.read_bytes())
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        run_experiment("sam_table4", seeds=[1], **chosen)  # cell 0 is not taken for cell 1
    with pytest.raises(InputError, match="other settings"):
        run_experiment(
            "sam_table4", seeds=[0], **{**chosen, "sets": [*chosen["sets"], "fine_tuning.steps=5"]}
        )
    monkeypatch.setattr("cl_graft.__version__", "9.9.9")
    with pytest.raises(InputError, match="another version of cl_graft"):
        run_experiment("sam_table4", seeds=[0], **chosen)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_settings_of_every_scale_are_a_config(name, scale):
    config = experiment_config(EXPERIMENTS[name], scale, data=Path("data"))
    assert config.stream.tasks
    if scale != "paper":
        return
    assert (config.stream.max_length is None) == (name != "table9")  # that of the tasks
    grafting, shots = config.grafting, config.stream.shots
    if name.startswith("table") and name not in ("table5", "table9"):
        assert (shots, grafting.density, grafting.mask_steps) == (4096, 1e-4, 100)
    elif name == "fig5":
        assert (shots, config.comparison.seeds, config.training.grid) == (4096, [0], True)
    elif name.startswith("sam_"):
        assert (shots, grafting.density, config.fine_tuning.steps) == (None, 0.005, 20_000)


def test_stored_results_become_pages_and_pictures_by_one_command(folder, tiny_bert, tmp_path):
    chosen = {"out": folder, "scale": "smoke", "sets": [f"model.name={tiny_bert}"]}
    made = run_experiment("sam_table4", seeds=[0], **chosen).folder
    shutil.copytree(made, tmp_path / "out" / made.name)
    places = ["--store", tmp_path / "out", "--results", tmp_path / "kept"]
    places += ["--docs", tmp_path / "docs"]
    run_script("paper_pages.py", *places)
    kept = read_stored(tmp_path / "kept" / "laboratory" / "sam_table4-smoke.json")
    assert f"`{kept.command}`" in (tmp_path / "docs" / "paper_tables" / "sam_table4.md").read_text()
    assert str(tmp_path) not in json.dumps(kept.command)
    assert (tmp_path / "docs" / "pictures" / "sam_table4.png").stat().st_size > 5_000
    run_script("paper_pages.py", "--store", tmp_path / "docs", code=2)


def test_the_script_lists_every_experiment():
    listed = json.loads(run_script("paper_experiment.py", "--json").stdout)
    assert [row["name"] for row in listed] == list(EXPERIMENTS)

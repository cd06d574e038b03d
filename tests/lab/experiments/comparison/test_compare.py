"""Comparisons: everything is written, nothing is computed twice, no failure loses the rest."""

import csv
import json
import os
import shutil

import pytest
from configs import changed
from interrupted import KILLED_WRITER
from safetensors.torch import load_file, save_file
from warm_processes import run_warm

from cl_graft.cli.app import _Once as Once
from cl_graft.cli.output import to_plain
from cl_graft.errors import InputError
from cl_graft.lab.commands.run_tables import list_failures
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.results.run_results import read_result
from cl_graft.settings.run_files import CHECKPOINTS


def test_every_cell_and_both_summaries_are_written(comparison, tiny_config):
    out = comparison.out
    assert comparison.failed == ()
    assert [cell.strategy for cell in comparison.runs] == ["grafting", "naive", "independent"]
    for cell in comparison.runs:
        folder = out / cell.strategy / "seed0"
        json_files = {f"{name}.json" for name in ("config", "curves", "errors", "results")}
        names = {path.name for path in folder.iterdir()} - {"bank"}
        assert names == {*json_files, "metrics.csv", "summary.md"}
        assert (folder / "bank").exists() == (cell.strategy == "grafting")
        assert read_result(folder) == cell
    assert json.loads((out / "summary.json").read_text()) == to_plain(comparison.summary)
    text = (out / "summary.md").read_text()
    for word in (*comparison.summary.strategies, *tiny_config.stream.tasks, "machine", "torch 2"):
        assert word in text
    share = comparison.summary.strategies["naive"].of_independent
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    place = rows[0].index("of independent")
    assert next(row for row in rows if row[0] == "| naive")[place] == f"{share:.3f}"


def test_independent_uses_the_dense_runs_of_grafting(comparison):
    by_name = {cell.strategy: cell for cell in comparison.runs}
    for task in by_name["grafting"].tasks:
        assert "dense" not in by_name["grafting"].seconds_saved[task]
        assert by_name["independent"].seconds_saved[task]["dense"] > 0
    dense = [p for p in (comparison.out / "cache").iterdir() if p.name.startswith("dense")]
    assert len(dense) == 3


def test_the_table_has_one_row_for_every_score(comparison):
    for cell in comparison.runs:
        with (comparison.out / cell.strategy / "seed0" / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 6
        for row in rows:
            j = cell.tasks.index(row["task"])
            assert float(row["score"]) == cell.R[int(row["experience"])][j]
            spent = sum(cell.find_seconds(row["learned"]).values())
            assert float(row["seconds"]) == pytest.approx(spent, abs=1e-3)


@pytest.mark.parametrize("left", ["run", "bank"])
def test_a_run_whose_process_was_killed_at_its_end_is_finished(comparison, tiny_config, left):
    run = comparison.out / "grafting" / "seed0"
    before = {path for path in run.rglob("*") if path.is_file()}
    (run / CHECKPOINTS).mkdir()
    (run / CHECKPOINTS / "run.safetensors").write_bytes(b"state")
    killed = run if left == "run" else run / "bank"
    run_warm(["-c", KILLED_WRITER, str(killed)], env=os.environ)
    compare(tiny_config, out=comparison.out)
    assert {path for path in run.rglob("*") if path.is_file()} == before
    assert not (run / CHECKPOINTS).exists()


def test_another_config_is_refused_and_told_apart(comparison, tiny_config):
    with pytest.raises(InputError, match="shots 16 there, 8 here"):
        compare(changed(tiny_config, {"shots": 8}), out=comparison.out)


def test_a_run_on_a_base_that_changed_since_is_compared_with_no_new_one(
    tmp_path, tiny_config, tiny_bert
):
    checkpoint = shutil.copytree(tiny_bert, tmp_path / "bert") / "model.safetensors"
    config = changed(
        tiny_config, {"name": str(tmp_path / "bert"), "tasks": ["scope"], "strategies": ["naive"]}
    )
    compare(config, out=tmp_path / "out")
    more = changed(config, {"strategies": ["naive", "joint"]})
    described = (tmp_path / "bert" / "config.json").read_text()
    (tmp_path / "bert" / "config.json").write_text(described.replace('"gelu"', '"relu"'))
    with pytest.raises(InputError, match=r"seed 0 was run \(hidden_act was 'gelu', is 'relu'\)"):
        compare(more, out=tmp_path / "out")
    (tmp_path / "bert" / "config.json").write_text(described)
    weights = load_file(checkpoint)
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    save_file(weights | {name: weights[name] + 0.1}, checkpoint, metadata={"format": "pt"})
    with pytest.raises(InputError, match="is another model than when naive with seed 0 was run"):
        compare(more, out=tmp_path / "out")
    assert not (tmp_path / "out" / "joint").exists()


def test_files_of_others_are_left_alone(tmp_path, tiny_config):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        compare(tiny_config, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_cell_that_fails_leaves_the_others_and_can_be_done_again(tmp_path, tiny_config):
    config = changed(
        tiny_config, {"tasks": ["scope", "topic"], "strategies": ["naive", "independent"]}
    )

    def stumble(step):
        if step.strategy == "naive" and step.task == "topic":
            raise RuntimeError("the power is gone")

    first = compare(config, out=tmp_path, progress=stumble)
    assert [cell.strategy for cell in first.runs] == ["independent"]
    failed, again = list_failures(first, config)
    assert failed == "FAILED: naive seed 0: RuntimeError: the power is gone"
    assert again.endswith(f"cl-graft compare --resume {tmp_path}")
    assert "the power is gone" in (tmp_path / "summary.md").read_text()
    left = read_result(tmp_path / "naive" / "seed0")
    assert (left.complete, len(left.R)) == (False, 1)

    second = compare(config, out=tmp_path)
    assert second.failed == ()
    assert [cell.strategy for cell in second.runs] == ["naive", "independent"]


def test_a_run_that_cannot_be_written_is_told_in_a_sentence(tmp_path, tiny_config, caplog):
    config = changed(tiny_config, {"tasks": ["scope"], "strategies": ["naive"]})
    (tmp_path / "naive").write_text("mine")
    folders.write_config(tmp_path, config.values())
    failed = compare(config, out=tmp_path).failed
    assert "there is a file in the way" in failed[0].error
    (record,) = [one for one in caplog.records if one.getMessage().endswith("failed")]
    assert "there is a file in the way" in Once().format(record)
    assert "Traceback" not in Once().format(record)
    assert (tmp_path / "naive").read_text() == "mine"


def test_wrong_data_is_told_before_anything_is_written(tmp_path, tiny_config):
    wrong = changed(tiny_config, {"tasks": ["scope", "topik"]})
    with pytest.raises(InputError, match="topic"):
        compare(wrong, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()

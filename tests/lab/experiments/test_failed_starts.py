"""A start that fails leaves nothing behind, and the next one may use its folder."""

from __future__ import annotations

import pytest
from configs import changed

from cl_graft.errors import DivergedError, InputError
from cl_graft.lab.commands.run_tables import list_failures
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.run import run
from cl_graft.settings.run_files import CACHE

SMALL = {"tasks": ["scope"], "steps": 2, "shots": 8, "max_test": 16, "strategies": ["naive"]}
DIVERGES = {"lr": 1e18}


@pytest.fixture
def config(tiny_config):
    return changed(tiny_config, SMALL)


def left(out):
    """What lies there beside the cache, which answers any start."""
    return [path for path in out.rglob("*") if CACHE not in path.relative_to(out).parts]


def test_a_run_that_diverges_at_once_does_not_block_its_folder(config, tmp_path):
    with pytest.raises(DivergedError):
        run(changed(config, DIVERGES), strategy="naive", seed=0, out=tmp_path)
    assert left(tmp_path) == []
    assert run(config, strategy="naive", seed=0, out=tmp_path).complete


def test_a_setting_that_is_refused_by_the_first_task_does_not_block_its_folder(config, tmp_path):
    config = changed(config, {"strategies": ["grafting"]})
    with pytest.raises(InputError, match="layers"):
        run(changed(config, {"layers": 99}), strategy="grafting", seed=0, out=tmp_path)
    assert left(tmp_path) == []
    assert run(config, strategy="grafting", seed=0, out=tmp_path).complete


@pytest.mark.parametrize("more", [{}, {"sweep": {"lr": [1e17, 1e18]}}])
def test_a_comparison_that_learned_nothing_does_not_block_its_folder(more, config, tmp_path):
    bad = compare(changed(config, DIVERGES | more), out=tmp_path)
    assert list_failures(bad, config)[-1].startswith("Nothing was learned")
    assert bad.runs == ()
    assert left(tmp_path) == []
    assert compare(config, out=tmp_path).runs


def test_a_comparison_of_which_something_was_learned_stays(config, tmp_path):
    done = compare(config, out=tmp_path)
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.html").touch()
    assert compare(config, out=tmp_path).runs == done.runs
    with pytest.raises(InputError, match="another config"):
        compare(changed(config, DIVERGES), out=tmp_path)
    assert (tmp_path / "config.json").is_file()


def test_a_model_of_two_types_is_refused_before_a_region_trains(config, tiny_t5, tmp_path):
    half = {"model": str(tiny_t5), "family": "seq2seq_lm", "dtype": "float16"}
    with pytest.raises(InputError, match=r"some matrices .* in float32 .* take bfloat16"):
        run(changed(config, half), strategy="grafting", seed=0, out=tmp_path)


def test_a_device_that_is_not_there_leaves_no_folder(config, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="no device"):
        compare(changed(config, {"device": "abacus"}), out=out)
    assert not out.exists()

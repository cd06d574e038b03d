"""results.json is the whole of a result; summaries are means and deviations of it."""

import json
import math
from dataclasses import asdict, replace

import pytest

from cl_graft.errors import BankError, FutureVersion, InputError
from cl_graft.reporting.summary import summarize
from cl_graft.results.run_results import RESULTS, Failure, RunResult, read_result, write_result
from cl_graft.storage.checksums import read_sealed, sealed_json


@pytest.fixture
def result() -> RunResult:
    return RunResult(
        strategy="naive",
        seed=0,
        tasks=["a", "b"],
        complete=True,
        R=[[0.9, None], [0.7, 0.8]],
        ece=[[0.1, None], [0.2, 0.4]],
        average_accuracy=0.75,
        backward_transfer=-0.2,
        forward_transfer=None,
        forgetting=0.2,
        metrics={"a": "accuracy", "b": "f1"},
        baseline=[None, None],
        coordinates={},
        overlap=None,
        bytes={"a": 8, "b": 12},
        seconds={"a": {"train": 1.0}, "b": {"train": 2.0, "evaluate": 0.5}},
        seconds_saved={"a": {"dense": 4.0}, "b": {}},
        logit_hashes={"a": {"learned": "1", "end": "2"}, "b": {"learned": "3", "end": "3"}},
        schedules={},
        data_fingerprints={"a": "x", "b": "y"},
        model={"name": "m", "family": "encoder", "fingerprint": "f", "graftable": 5},
        versions={},
        machine={},
        memory={"parameters": 4, "activations": 8, "rows": 2, "tokens": 16},
    )


def test_what_was_written_is_read_back(tmp_path, result):
    write_result(result, tmp_path)
    assert read_result(tmp_path) == result
    stored = json.loads((tmp_path / RESULTS).read_text())
    assert {name: stored[name] for name in asdict(result)} == asdict(result)


def test_results_from_before_there_were_checksums_are_read(tmp_path, result):
    values = asdict(result)
    del values["config"]
    (tmp_path / RESULTS).write_text(json.dumps(values))
    assert read_result(tmp_path) == result


def test_results_of_a_newer_version_are_refused_as_such(tmp_path, result):
    write_result(result, tmp_path)
    values = read_sealed((tmp_path / RESULTS).read_bytes(), name="it")
    (tmp_path / RESULTS).write_bytes(sealed_json({**values, "version": 99}))
    with pytest.raises(FutureVersion, match="has version 99"):
        read_result(tmp_path)


def test_every_single_bit_flip_of_results_is_noticed(tmp_path, result):
    write_result(result, tmp_path)
    path = tmp_path / RESULTS
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 3):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(changed)
        with pytest.raises((BankError, InputError)):
            read_result(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"strategy": "naive"}', "no json"])
def test_a_file_that_is_no_result_is_refused(tmp_path, text):
    (tmp_path / RESULTS).write_text(text)
    with pytest.raises(InputError, match="not the results of a run"):
        read_result(tmp_path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_result(tmp_path)


def test_total_seconds_count_what_the_cache_saved(result):
    assert result.total_seconds == 7.5


def test_a_summary_holds_mean_and_sample_deviation_over_seeds(config, result):
    other = replace(result, seed=1, average_accuracy=0.85, R=[[0.9, None], [0.8, 0.9]])
    row = summarize(config, [result, other])["strategies"]["naive"]
    assert row["average_accuracy"]["mean"] == pytest.approx(0.8)
    assert row["average_accuracy"]["sd"] == pytest.approx(math.sqrt(0.005))
    assert row["final"]["b"]["mean"] == pytest.approx(0.85)
    assert row["bytes_per_task"] == {"mean": 10, "sd": 0, "interval": None, "n": 2}
    assert row["ece"]["mean"] == pytest.approx(0.3)
    assert row["forward_transfer"] == {"mean": None, "sd": None, "interval": None, "n": 0}


def test_a_single_seed_has_no_deviation(config, result):
    summary = summarize(config, [result], [Failure("grafting", 0, "no")])
    assert summary["strategies"]["naive"]["average_accuracy"]["sd"] is None
    assert summary["failed"] == [{"strategy": "grafting", "seed": 0, "error": "no"}]


def test_strategies_are_stated_as_a_share_of_independent_fine_tuning(config, result):
    best = replace(result, strategy="independent", average_accuracy=1.0)
    rows = summarize(config, [result, best])["strategies"]
    assert rows["naive"]["of_independent"] == 0.75
    assert rows["independent"]["of_independent"] == 1.0


@pytest.fixture
def config():
    from cl_graft.experiments.config import config_from

    return config_from({"tasks": "a,b", "seeds": "0,1"})

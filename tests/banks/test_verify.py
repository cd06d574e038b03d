"""Verification sees every difference, and nothing but differences."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import config_with
from tiny_runs import QUICK, tiny_run

from cl_graft import load_bank, save_bank
from cl_graft.banks.add import add_task
from cl_graft.banks.forget import forget
from cl_graft.banks.verify import VerifyReport, find_bank_folder, verify
from cl_graft.errors import (
    BankError,
    DamagedFile,
    InputError,
    WrongArchitecture,
    WrongBase,
    WrongTokenizer,
)
from cl_graft.grafts.bank import RecordedBatch
from cl_graft.grafts.graft import Graft
from cl_graft.lab.experiments.folders import run_folder
from cl_graft.lab.experiments.run import run as run_strategy
from cl_graft.models import load_model
from cl_graft.storage.files import dump_json, load_json


@pytest.fixture(scope="module")
def run(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("verify"), tiny_bert, ["scope", "topic"])


def changed(run: Path, folder: Path, position: int, **fields: object) -> Path:
    """Save the run's bank with one entry made otherwise; its files are all in order."""
    bank = load_bank(run / "bank")
    entries = list(bank.entries)
    entries[position] = replace(entries[position], **fields)  # type: ignore[arg-type]
    save_bank(replace(bank, entries=tuple(entries)), folder)
    return folder


def recorded_otherwise(run: Path, folder: Path, *, by: object = 0, **environment: str) -> Path:
    """Save the run's bank with other logits, or another environment, of the first entry's batch."""
    batch = recorded_batch_of(run)
    logits, known = batch.logits + by, {**batch.environment, **environment}
    other = replace(batch, logits=logits, environment=known)
    return changed(run, folder, 0, recorded_batch=other)


def change_results(run: Path, folder: Path, change: Callable[[Any], object]) -> None:
    """Write a run's results to a folder with something changed and a checksum that fits."""
    data = (run / "results.json").read_bytes()
    values = load_json(data, format="cl-graft-results", name="results")
    change(values)
    (folder / "results.json").write_bytes(dump_json(values, format="cl-graft-results"))


def recorded_batch_of(run: Path) -> RecordedBatch:
    batch = load_bank(run / "bank").entries[0].recorded_batch
    assert batch is not None
    return batch


def test_a_bank_answers_in_a_rebuilt_model_with_the_bits_it_was_learned_with(run):
    steps = []
    report = verify(run, progress=lambda *step: steps.append(step))
    assert steps == [("verify scope", 1, 2), ("verify topic", 2, 2)]
    assert report.ok
    assert [(e.task, e.weights, e.recorded_batch, e.run) for e in report.entries] == [
        ("scope", "same bits", "same bits", "same bits"),
        ("topic", "same bits", "same bits", "same bits"),
    ]
    assert all(entry.difference == 0 for entry in report.entries)


def test_a_bank_alone_is_verified_too_and_by_weights_where_no_batch_was_recorded(run, tmp_path):
    report = verify(changed(run, tmp_path / "alone", 0, recorded_batch=None))
    assert report.ok
    assert {entry.run for entry in report.entries} == {"not recorded"}
    assert [e.recorded_batch for e in report.entries] == ["not recorded", "same bits"]
    assert report.entries[0].difference is None


def test_weights_that_are_not_the_recorded_ones_are_seen_in_their_entry_alone(run, tmp_path):
    report = verify(changed(run, tmp_path / "bank", 1, weights_sha256="0" * 64))
    assert not report.ok
    assert [entry.weights for entry in report.entries] == ["same bits", "differs"]


def test_another_value_changes_weights_and_logits_of_its_entry_and_of_all_later_ones(run, tmp_path):
    owned = load_bank(run / "bank").entries[0].owned
    other = replace(owned, values=owned.values + 1)
    report = verify(changed(run, tmp_path / "bank", 0, owned=other))
    assert [entry.weights for entry in report.entries] == ["differs", "differs"]
    assert [entry.recorded_batch for entry in report.entries] == ["differs", "differs"]


def test_in_the_recorded_environment_the_last_bit_of_a_logit_counts(run, tmp_path):
    logits = recorded_batch_of(run).logits
    bit = torch.nextafter(logits, torch.full_like(logits, 9.0)) - logits
    report = verify(recorded_otherwise(run, tmp_path / "bank", by=bit))
    assert report.entries[0].recorded_batch == "differs"
    assert report.entries[0].elsewhere == ()


def test_another_head_and_logits_of_another_shape_are_seen(run, tmp_path):
    head = {name: value + 1e-3 for name, value in load_bank(run / "bank").entries[0].head.items()}
    batch = recorded_batch_of(run)
    flat = replace(batch, logits=batch.logits.reshape(-1))
    for name, fields in (("head", {"head": head}), ("flat", {"recorded_batch": flat})):
        report = verify(changed(run, tmp_path / name, 0, **fields))
        assert (report.ok, report.entries[0].recorded_batch) == (False, "differs")


@pytest.mark.parametrize(
    ("by", "outcome", "ok"),
    [
        (1e-6, "within tolerance", True),
        *((by, "differs", False) for by in (1e-1, float("nan"), float("inf"))),
    ],
)
def test_from_other_environments_logits_are_compared_to_a_tolerance(run, tmp_path, by, outcome, ok):
    bank = recorded_otherwise(run, tmp_path / "bank", by=by, torch="1.0", threads="1")
    report = verify(bank)
    assert report.entries[0].recorded_batch == outcome
    assert report.entries[0].elsewhere[-1] == f"torch 1.0, here {torch.__version__}"
    assert report.ok is ok


def test_the_recorded_number_of_threads_is_used_and_given_back(run, tmp_path):
    here = torch.get_num_threads()
    report = verify(recorded_otherwise(run, tmp_path / "two", threads="2"))
    assert report.entries[0].elsewhere == ()
    report = verify(recorded_otherwise(run, tmp_path / "many", threads="1000000"))
    assert report.entries[0].elsewhere == (f"threads 1000000, here {here}",)
    assert report.ok
    assert torch.get_num_threads() == here


def test_an_entry_that_the_model_cannot_answer_with_is_refused(run, tmp_path):
    entry = load_bank(run / "bank").entries[0]
    batch = recorded_batch_of(run)
    nothing = Graft(entry.owned.region, entry.owned.values * float("nan"))
    for number, fields in enumerate([
        {"owned": nothing},
        {"head": {**entry.head, "bias": entry.head["bias"] * float("nan")}},
        {"head": {}},
        {"head": {name: each.reshape(-1)[:1] for name, each in entry.head.items()}},
        {"recorded_batch": replace(batch, inputs=batch.inputs + 10**6)},
        {"recorded_batch": replace(batch, inputs=batch.inputs.float())},
        {"recorded_batch": replace(batch, inputs=batch.inputs[:0], logits=batch.logits[:0])},
        {"recorded_batch": replace(batch, logits=batch.logits.long())},
    ]):  # fmt: skip
        bank = changed(run, tmp_path / str(number), 0, **fields)
        with pytest.raises(DamagedFile, match=r"scope('|\.safetensors) is damaged"):
            verify(bank)


def test_a_run_that_measured_other_logits_at_the_end_is_seen(run, tmp_path):
    save_bank(load_bank(run / "bank"), tmp_path / "bank")
    change_results(run, tmp_path, lambda results: results["logit_hashes"]["topic"].update(end="0"))
    report = verify(tmp_path)
    assert [entry.run for entry in report.entries] == ["same bits", "differs"]
    assert not report.ok


def test_the_base_may_have_moved_but_must_be_the_same(run, tiny_bert, tiny_distilbert, tmp_path):
    bank = load_bank(run / "bank")
    save_bank(replace(bank, base=replace(bank.base, model="gone")), tmp_path / "bank")
    with pytest.raises(InputError, match="gone"):
        verify(tmp_path / "bank")
    assert verify(tmp_path / "bank", model=str(tiny_bert)).ok
    with pytest.raises(WrongArchitecture, match="belongs to a model of"):
        verify(tmp_path / "bank", model=str(tiny_distilbert))
    with pytest.raises(WrongBase, match="fingerprint"):
        verify(tmp_path / "bank", model=str(other_weights(tiny_bert, tmp_path / "other")))


def test_where_there_is_no_bank_it_is_said_what_there_is(run, tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        verify(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"name one of its runs: .*grafting/seed0"):
        verify(run.parent.parent)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(InputError, match="not the results of a run"):
        verify(tmp_path)
    with pytest.raises(InputError, match="holds no bank"):
        find_bank_folder(tmp_path)


def outcomes(report: VerifyReport) -> dict[str, str]:
    return {check.what: check.outcome for check in report.checks}


def test_everything_that_a_run_recorded_is_compared(run):
    found = outcomes(verify(run))
    assert set(found.values()) == {"same"}
    assert {"results.json", "config.json", "metrics.csv", "summary.md", "settings"} <= set(found)
    assert {"base model", "data of scope", "data of topic"} <= set(found)
    assert {"base config.json", "base model.safetensors", "base tokenizer.json"} <= set(found)


def test_a_run_without_a_bank_is_verified_by_all_the_rest(tiny_bert, tmp_path):
    config = config_with({**QUICK, "model": str(tiny_bert), "tasks": ["scope"]})
    run_strategy(config, strategy="naive", seed=0, out=tmp_path)
    folder = run_folder(tmp_path, "naive", 0)
    report = verify(folder)
    assert report.ok
    assert report.entries == ()
    assert set(outcomes(report).values()) == {"same"}
    with pytest.raises(WrongBase, match="another base model"):
        verify(folder, model=str(other_weights(tiny_bert, tmp_path / "other")))


@pytest.mark.parametrize("name", ["results.json", "config.json"])
def test_a_flipped_bit_of_results_or_config_is_refused(run, tmp_path, name):
    copied = shutil.copytree(run, tmp_path / "run")
    data = bytearray((copied / name).read_bytes())
    for place in (40, len(data) // 2, len(data) - 3):
        changed = bytearray(data)
        changed[place] ^= 4
        (copied / name).write_bytes(changed)
        with pytest.raises(BankError, match=rf"{name} is (cut short or )?altered"):
            verify(copied)


def test_a_changed_table_is_a_difference(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "metrics.csv").write_text((copied / "metrics.csv").read_text() + "\n")
    (copied / "summary.md").unlink()
    report = verify(copied)
    assert not report.ok
    assert [outcomes(report)[name] for name in ("metrics.csv", "summary.md")] == ["differs"] * 2


def test_a_config_put_in_the_place_of_another_is_a_difference(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    config = copied / "config.json"
    values = load_json(config.read_bytes(), format="cl-graft-config", name="config")
    values["stream"]["shots"] = 9
    config.write_bytes(dump_json(values, format="cl-graft-config"))
    found = outcomes(verify(copied))
    assert (found["config.json"], found["settings"]) == ("differs", "differs")


def test_results_that_are_gone_are_a_difference(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "grafting" / "seed0")
    (copied / "results.json").unlink()
    for place in (copied, copied / "bank"):
        report = verify(place)
        assert (outcomes(report)["results.json"], report.ok) == ("differs", False)
    (copied / "checkpoints").mkdir()
    assert outcomes(verify(copied))["results.json"] == "not checked"
    shutil.rmtree(copied / "bank")
    with pytest.raises(InputError, match=r"holds no results\.json: it is not finished"):
        verify(copied)


def test_a_bank_that_grew_and_forgot_is_verified_with_its_run(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "grafting" / "seed0")
    add_task(copied, "answered")
    assert verify(copied).ok
    forget(copied, "answered")
    assert verify(copied / "bank").ok


def test_other_data_are_a_difference_and_missing_data_are_said(tiny_bert, tmp_path):
    rows = [f"{['wet', 'fine'][n % 2]} day {n},{['rain', 'sun'][n % 2]}" for n in range(60)]
    data = tmp_path / "days.csv"
    data.write_text("\n".join(["text,label", *rows]) + "\n")
    folder = tiny_run(tmp_path / "out", tiny_bert, [str(data)])
    assert outcomes(verify(folder))["data of days"] == "same"
    data.write_text("\n".join(["text,label", *rows[2:], "dry day,sun", "wet day,rain"]) + "\n")
    report = verify(folder)
    assert (outcomes(report)["data of days"], report.ok) == ("differs", False)
    data.unlink()
    report = verify(folder)
    assert (outcomes(report)["data"], report.ok) == ("not checked", True)


def test_other_versions_are_said_and_are_no_fault(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    change_results(run, copied, lambda results: results["versions"].update(datasets="1.0"))
    report = verify(copied)
    assert outcomes(report)["datasets"] == "other here"
    assert report.ok


def other_weights(model: Path, folder: Path) -> Path:
    loaded = load_model(str(model))
    with torch.no_grad():
        next(loaded.model.backbone.parameters())[0, 0] += 1.0
    loaded.model.backbone.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder


def test_another_tokenizer_on_the_same_weights_is_refused_as_such(run, tiny_bert, tmp_path):
    other = shutil.copytree(tiny_bert, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = not tokenizer["normalizer"]["lowercase"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(WrongTokenizer, match="the weights are the same, but its tokenizer"):
        verify(run, model=str(other))


def test_a_bit_of_the_checkpoint_beside_its_weights_is_a_difference(run, tiny_bert, tmp_path):
    other = shutil.copytree(tiny_bert, tmp_path / "other")
    config = (other / "config.json").read_text()
    (other / "config.json").write_text(config.replace("0.1", "0.5", 1))
    report = verify(run, model=str(other))
    assert outcomes(report)["base config.json"] == "differs"
    assert not report.ok
    assert all(entry.ok for entry in report.entries)


def test_code_of_a_checkpoint_is_not_run_because_a_bank_says_so(run, tmp_path):
    bank = load_bank(run / "bank")
    base = replace(bank.base, metadata={**bank.base.metadata, "trust_remote_code": True})
    save_bank(replace(bank, base=base), tmp_path / "bank")
    with pytest.raises(InputError, match="runs only with trust_remote_code=True"):
        verify(tmp_path / "bank")
    assert verify(tmp_path / "bank", trust_remote_code=True).ok

"""The bank of an Avalanche program is opened by commands, if the program records base and tasks."""

from dataclasses import replace

import pytest
import torch
from slow_cases import slow
from tiny_runs import cl_graft_each
from tiny_streams import same_entries

import cl_graft as cg
from cl_graft.banks.forget import forget
from cl_graft.banks.open_bank import load_base
from cl_graft.settings.bank_metadata import base_hashes


def learn(loaded, stream, folder, *, mode="prefix", **record):
    """Learn the stream as an Avalanche program does, and save its bank."""
    dense = cg.FineTuning(steps=4)
    quick = cg.GraftingSettings(mask_steps=2, mask_batch=16, mode=mode, fine_tuning=dense)
    model = cg.text_model(loaded, stream)
    strategy = cg.GraftingContinual(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.3),
        train_mb_size=8,
        grafting=cg.GraftingPlugin(quick, dev=stream.benchmark.valid_stream, **record),
    )
    strategy.train(stream.benchmark.train_stream)
    assert strategy.bank is not None
    cg.save_bank(strategy.bank, folder)


@pytest.fixture
def prepared(tiny_bert, tiny_gpt2):
    def make(family, **how):
        name = tiny_bert if family == "encoder" else tiny_gpt2
        loaded = cg.load_model(str(name), family=family, **how)
        tasks = [cg.load_task(name, shots=8, max_test=16) for name in ("scope", "entailment")]
        return loaded, cg.text_stream(tasks, loaded.tokenizer, family=family, max_length=48)

    return make


@pytest.mark.parametrize(
    ("family", "how", "mode"),
    [
        ("encoder", {"pooling": "first"}, "isolated"),
        *slow(("causal_lm", {"precision": "bf16"}, "prefix")),
    ],
)
def test_commands_open_the_bank_of_a_program_that_recorded_base_and_tasks(
    prepared, tmp_path, family, how, mode
):
    loaded, stream = prepared(family, **how)
    record = cg.record_stream(loaded, stream)
    learn(loaded, stream, tmp_path / "bank", mode=mode, **record)
    quick = ["--shots", "8", "--steps", "2", "--set", "grafting.mask_steps=2", "--device", "cpu"]
    verified, asked, added, again = cl_graft_each(
        [
            ["verify", tmp_path / "bank"],
            ["predict", tmp_path / "bank", "A fine soup.", "--task", "scope", "--quiet"],
            ["add", tmp_path / "bank", "--task", "topic", *quick, "--quiet"],
            ["verify", tmp_path / "bank"],
        ]
    )
    assert [told.code for told in (verified, asked, added, again)] == [0, 0, 0, 0], added
    assert "All 2 entries answer" in verified.out
    assert asked.out.split("\t")[0] in ("out_of_scope", "in_scope")
    assert "All 3 entries answer" in again.out


def test_the_base_is_loaded_as_the_program_loaded_it(prepared):
    loaded, stream = prepared("encoder", pooling="first", dtype="bfloat16")
    record = cg.record_stream(loaded, replace(stream, first_label=3))
    identity = record["identity"]
    assert base_hashes(load_base(identity)).fingerprint == identity.fingerprint
    assert [record["metadata"][label].name for label in (3, 4)] == ["scope", "entailment"]
    assert "shots" not in record["metadata"][3].metadata  # those of a config that was not used


def test_what_was_learned_by_a_program_is_not_called_exact_when_trained_again(prepared, tmp_path):
    loaded, stream = prepared("encoder")
    learn(loaded, stream, tmp_path / "bank", **cg.record_stream(loaded, stream))
    sets = ["stream.shots=8", "fine_tuning.steps=2", "grafting.mask_steps=2"]
    with pytest.raises(cg.InputError, match="not those that it was trained on"):
        forget(tmp_path / "bank", "scope", retrain=True)
    report = forget(tmp_path / "bank", "scope", retrain=True, sets=[*sets, "stream.max_test=16"])
    assert (report.done, report.exact) == (True, False)


def test_without_the_record_a_command_says_what_is_missing(prepared, tmp_path):
    loaded, stream = prepared("encoder")
    learn(loaded, stream, tmp_path / "bank")
    verified, shown = cl_graft_each([["verify", tmp_path / "bank"], ["inspect", tmp_path / "bank"]])
    assert verified.code == 2
    assert "without what cl_graft.record_stream gives" in verified.err.replace("\n", " ")
    assert "not recorded" in shown.out


def test_recording_changes_no_draw(prepared, tmp_path):
    banks = []
    for recorded in (True, False):
        loaded, stream = prepared("encoder")
        record = cg.record_stream(loaded, stream) if recorded else {}
        learn(loaded, stream, tmp_path / f"bank {recorded}", **record)
        banks.append(cg.load_bank(tmp_path / f"bank {recorded}"))
    assert same_entries(*(bank.entries for bank in banks))

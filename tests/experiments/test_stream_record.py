"""The bank of an Avalanche program is opened by commands, if the program records base and tasks."""

import pytest
import torch
from tiny_runs import cl_graft_each

import cl_graft as cg
from cl_graft.banks.bank_base import load_base
from cl_graft.experiments.bank_metadata import base_fingerprint


def learn(loaded, stream, folder, **record):
    """Learn the stream as an Avalanche program does, and save its bank."""
    quick = cg.GraftingSettings(mask_steps=2, mask_batch=16, fine_tuning=cg.FineTuning(steps=4))
    model = cg.text_model(loaded, stream)
    strategy = cg.GraftingContinual(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.3),
        train_mb_size=8,
        grafting=cg.GraftingPlugin(quick, dev=stream.benchmark.valid_stream, **record),
    )
    for experience in stream.benchmark.train_stream:
        strategy.train(experience)
    assert strategy.bank is not None
    cg.save_bank(strategy.bank, folder)


@pytest.fixture
def prepared(tiny_bert, tiny_gpt2):
    def make(family, **how):
        name = tiny_bert if family == "encoder" else tiny_gpt2
        loaded = cg.load_model(str(name), family=family, **how)
        tasks = [cg.load_task(name, shots=8, max_test=16) for name in ("sentiment", "urgency")]
        return loaded, cg.text_stream(tasks, loaded.tokenizer, family=family, max_length=24)

    return make


@pytest.mark.parametrize(
    ("family", "how"), [("encoder", {"pooling": "first"}), ("causal_lm", {"precision": "bf16"})]
)
def test_commands_open_the_bank_of_a_program_that_recorded_base_and_tasks(
    prepared, tmp_path, family, how
):
    loaded, stream = prepared(family, **how)
    learn(loaded, stream, tmp_path / "bank", **cg.record_stream(loaded, stream))
    quick = ["--shots", "8", "--steps", "2", "--set", "grafting.mask_steps=2", "--device", "cpu"]
    verified, asked, added, again = cl_graft_each(
        [
            ["verify", tmp_path / "bank"],
            ["predict", tmp_path / "bank", "A fine soup.", "--task", "sentiment", "--quiet"],
            ["add", tmp_path / "bank", "--task", "topic", *quick, "--quiet"],
            ["verify", tmp_path / "bank"],
        ]
    )
    assert [told.code for told in (verified, asked, added, again)] == [0, 0, 0, 0], added
    assert "All 2 entries answer" in verified.out
    assert asked.out.split("\t")[0] in ("positive", "negative")
    assert "All 3 entries answer" in again.out


def test_the_base_is_loaded_as_the_program_loaded_it(prepared):
    loaded, stream = prepared("encoder", pooling="first", dtype="bfloat16")
    identity = cg.record_stream(loaded, stream)["identity"]
    assert base_fingerprint(load_base(identity)) == identity.fingerprint


def test_without_the_record_a_command_says_what_is_missing(prepared, tmp_path):
    loaded, stream = prepared("encoder")
    learn(loaded, stream, tmp_path / "bank")
    verified, shown = cl_graft_each([["verify", tmp_path / "bank"], ["inspect", tmp_path / "bank"]])
    assert verified.code == 2
    assert "without what cl_graft.record_stream gives" in verified.err.replace("\n", " ")
    assert "not recorded" in shown.out

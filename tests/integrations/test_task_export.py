"""An exported task gives the same logits through transformers and peft alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from integrations.conftest import FAMILIES
from integrations.readme import answered, run_readme
from safetensors import safe_open
from slow_cases import slow, slow_but
from tiny_runs import cl_graft_each
from warm_processes import run_warm

from cl_graft import InputError
from cl_graft.banks.open_bank import open_bank
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.integrations import export_task
from cl_graft.models import load_model

ASKED = [
    ("scope", "It was a delight.", None),
    ("scope", "The film is slow and the plot is thin, but I liked it!", None),
    ("answers", "Who wrote it?", "A teacher."),
    ("scope", "[MASK] <mask> </s> It was [SEP] a delight.", None),
    # The tokenizers cut these to the 64 tokens of these banks.
    ("scope", "The film is slow and the plot is thin. " * 30, None),
    ("answers", "Who wrote it? " * 40, "A teacher wrote it. " * 9),
    ("answers", "Who?", "A teacher in a small town near the mountains wrote it!" * 20),
]
FEW = ("mean", "masked_lm")


@pytest.mark.parametrize("family", ["mean", *slow("first", "half")])
def test_the_lines_of_the_readme_give_the_logits_of_the_bank(bank_of_family, tmp_path, family):
    bank = bank_of_family(family)
    opened = open_bank(bank)
    for task in ("scope", "answers"):
        assert export_task(bank, task, format="hf", out=tmp_path / task).coordinates > 0
    for task, text, pair in ASKED:
        wanted = torch.tensor(opened.predict((text, pair) if pair else text, task=task).logits)
        # The class of transformers for `first` has a layer more, which rounds.
        close = 1e-6 if family == "first" else 0
        torch.testing.assert_close(
            answered(tmp_path / task, text, pair), wanted, rtol=close, atol=close
        )


@pytest.mark.parametrize("form", ["hf", "peft-shira"])
@pytest.mark.parametrize("family", ["masked_lm", *slow("causal_lm")])
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is:FutureWarning")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly:UserWarning")
def test_the_readme_loads_a_prompted_model_and_says_how_it_is_asked(
    bank_of_family, tmp_path, family, form
):
    bank, out = bank_of_family(family), tmp_path / "out"
    export_task(bank, "scope", format=form, out=out)
    model = run_readme(out)["model"]
    opened = open_bank(bank)
    opened.carry(0)
    merged = model.merge_and_unload() if form == "peft-shira" else model
    theirs = dict(merged.named_parameters())
    for name, mine in opened.loaded.model.backbone.named_parameters():
        torch.testing.assert_close(theirs[name], mine, rtol=0, atol=0 if form == "hf" else 1e-7)
    record = json.loads((out / "task.json").read_text())
    assert f"Prompt: `{record['prompt']['template']}`" in (out / "README.md").read_text()
    ids = opened.bank.entries[0].head["token_ids"]
    assert [row[0] for row in record["label_token_ids"]] == ids.reshape(len(ids), -1)[:, 0].tolist()


@pytest.mark.parametrize("family", slow_but(FEW, FAMILIES))
def test_a_checkpoint_holds_the_bits_of_the_grafted_base(bank_of_family, tmp_path, family):
    bank = bank_of_family(family)
    opened = open_bank(bank)
    export_task(bank, "answers", format="hf", out=tmp_path / "out")
    metadata = opened.bank.base.metadata
    again = load_model(
        str(tmp_path / "out"),
        family=str(metadata["family"]),
        pooling=str(metadata["pooling"]),
        dtype=opened.bank.base.dtype,
        precision=metadata.get("precision", "fp32"),
    )
    opened.carry(1)
    mine = {f"backbone.{n}": p for n, p in opened.loaded.model.backbone.named_parameters()}
    theirs = {f"backbone.{n}": p for n, p in again.model.backbone.named_parameters()}
    assert hash_tensors(mine) == hash_tensors(theirs)
    inputs = opened.bank.entries[1].recorded_batch.inputs
    again.model.add_head(1, opened.loaded.model.heads["1"])
    with torch.no_grad():
        assert torch.equal(again.model(inputs, 1), opened.bank.entries[1].recorded_batch.logits)


@pytest.mark.parametrize("family", ["masked_lm", *slow("causal_lm", "gpt2")])
def test_a_checkpoint_has_the_tensors_of_the_base_as_tools_that_merge_expect(
    bank_of_family, tmp_path, family
):
    """As mergekit reads models: a config that names the class, and tensors by name and shape."""
    bank = bank_of_family(family)
    export_task(bank, "answers", format="hf", out=tmp_path / "out")
    base = Path(open_bank(bank).bank.base.model)
    assert shapes(tmp_path / "out") == shapes(base)
    configs = [json.loads((f / "config.json").read_text()) for f in (tmp_path / "out", base)]
    assert configs[0]["architectures"] == configs[1]["architectures"]
    assert configs[0]["model_type"] == configs[1]["model_type"]
    assert (tmp_path / "out" / "tokenizer.json").is_file()


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def test_an_export_says_what_it_is(bank_of_family, tmp_path):
    bank = bank_of_family("masked_lm")
    export_task(bank, "scope", format="hf", out=tmp_path / "out")
    record = json.loads((tmp_path / "out" / "task.json").read_text())
    entry = open_bank(bank).bank.entries[0]
    assert record["label_names"] == ["in_scope", "out_of_scope"]
    assert record["coordinates"] == len(entry.owned)
    assert record["prompt"] == entry.metadata["prompt"]
    assert len(record["base"]["fingerprint"]) == 64
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "Labels, in the order of the logits: `in_scope`, `out_of_scope`" in readme


def test_a_folder_in_use_and_unknown_names_are_refused_and_leave_nothing(bank_of_family, tmp_path):
    bank = bank_of_family("mean")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        export_task(bank, "answers", format="hf", out=tmp_path / "full")
    with pytest.raises(InputError, match="did you mean 'answers'"):
        export_task(bank, "answer", format="hf", out=tmp_path / "out")
    with pytest.raises(InputError, match="no format 'onnx'"):
        export_task(bank, "answers", format="onnx", out=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_the_command_line_exports_and_tells_what_is_in_whole_copies(bank_of_family, tmp_path):
    bank, out = bank_of_family("mean"), tmp_path / "out"
    command = ["export", bank, "--task", "scope", "--out", out, "--format", "peft-shira"]
    (told,) = cl_graft_each([[*command, "--json"]])
    assert told.code == 0, told
    assert told.json["format"] == "peft-shira"
    assert sum(told.json["copied"].values()) > 0
    assert set(told.json["files"]) >= {"README.md", "adapter_config.json", "head.safetensors"}


FULL = """
import resource, sys
from cl_graft.errors import CannotWrite
from cl_graft.integrations import export_task
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, resource.RLIM_INFINITY))
for form in ("hf", "peft-shira"):
    try:
        export_task(sys.argv[1], "scope", format=form, out=sys.argv[2])
    except CannotWrite as error:
        print(form, error)
"""


def test_a_full_disk_is_said_and_leaves_nothing(bank_of_family, tmp_path):
    command = ["-c", FULL, str(bank_of_family("mean")), str(tmp_path / "out")]
    told = run_warm(command, env=os.environ)
    lines = told.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["hf", "peft-shira"]
    assert all("cannot write" in line and "ulimit -f" in line for line in lines)
    assert list(tmp_path.iterdir()) == []

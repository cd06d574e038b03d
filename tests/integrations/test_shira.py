"""A SHiRA adapter has the values of its graft through peft alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from integrations.readme import answered
from slow_cases import slow

from cl_graft import InputError
from cl_graft.banks.open_bank import open_bank
from cl_graft.grafts.graft import gather
from cl_graft.integrations import export_task
from cl_graft.storage import load_bank

pytestmark = [
    # peft asks transformers by a name that is on its way out, and torch for sparse tensors.
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly:UserWarning"),
]

TEXT = "The film is slow and the plot is thin, but I liked it!"


def loaded(folder: Path, bank: Path) -> torch.nn.Module:
    """The adapted backbone as peft makes it, with its differences merged in."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(open_bank(bank).loaded.model.backbone, folder)
    return model.merge_and_unload()


@pytest.mark.parametrize("family", ["mean", *slow("masked_lm", "causal_lm")])
def test_with_whole_copies_beside_it_an_adapter_has_the_bits_of_the_graft(
    bank_of_family, tmp_path, family
):
    bank = bank_of_family(family)
    exported = export_task(bank, "scope", format="peft-shira", out=tmp_path / "out")
    graft = load_bank(bank).answer(0)
    merged = dict(loaded(tmp_path / "out", bank).named_parameters())
    found = gather({f"backbone.{name}": p for name, p in merged.items()}, graft.region)
    assert float((found.values - graft.values).abs().max()) < 1e-7
    base = dict(open_bank(bank).loaded.model.backbone.named_parameters())
    parts = {n.removeprefix("backbone."): len(at) for n, at, _ in graft.region.by_parameter()}
    copied = {name.rpartition(".")[0] for name in parts if base[name].dim() == 1}
    size = sum(size for name, size in parts.items() if name.rpartition(".")[0] in copied)
    assert sum(exported.copied.values()) == size
    assert size or family == "causal_lm"
    masks = graft.region.masks()
    for name, parameter in base.items():
        outside = ~masks.get(f"backbone.{name}", torch.zeros(parameter.shape, dtype=torch.bool))
        assert torch.equal(merged[name][outside], parameter[outside])


def test_the_lines_of_the_readme_give_the_logits_of_the_bank(bank_of_family, tmp_path):
    bank = bank_of_family("mean")
    export_task(bank, "scope", format="peft-shira", out=tmp_path / "out")
    (wanted,) = open_bank(bank).predict([TEXT], task="scope")
    torch.testing.assert_close(answered(tmp_path / "out", TEXT), torch.tensor(wanted.logits))


def test_half_precision_is_refused_as_adapters_add_fp32(bank_of_family, tmp_path):
    with pytest.raises(InputError, match="adds fp32 differences, and this base is bfloat16"):
        export_task(bank_of_family("half"), 0, format="peft-shira", out=tmp_path / "out")


def test_a_model_without_linear_layers_is_refused(bank_of_family, tmp_path):
    with pytest.raises(InputError, match=r"it would hold none \(Conv1D\.weight .*export it as hf"):
        export_task(bank_of_family("gpt2"), 0, format="peft-shira", out=tmp_path / "out")

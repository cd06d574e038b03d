"""Computing in half precision: fp32 weights that learn, and answers that keep their bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from avalanche.models import SimpleMLP
from configs import config_with
from slow_cases import slow
from tiny_runs import tiny_run

from cl_graft import load_bank
from cl_graft.banks.add import add_task
from cl_graft.banks.open_bank import open_bank
from cl_graft.banks.verify import verify
from cl_graft.errors import InputError
from cl_graft.models import load_model, make_head
from cl_graft.settings.bank_metadata import base_hashes
from cl_graft.strategies.strategy_checks import check_model

HALF = ["bf16", *slow("fp16")]


@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize(
    ("checkpoint", "family"),
    [("tiny_bert", "encoder"), ("tiny_roberta", "masked_lm"), ("tiny_gpt2", "causal_lm")],
)
def test_logits_are_fp32_and_near_those_of_fp32(request, checkpoint, family, precision):
    def logits(precision: str) -> torch.Tensor:
        folder = str(request.getfixturevalue(checkpoint))
        loaded = load_model(folder, family=family, precision=precision)
        words = None if family == "encoder" else [(7,), (9,)]
        head = make_head(loaded.model, classes=2, label_token_ids=words, seed=0)
        loaded.model.add_head(0, head)
        mask = loaded.tokenizer.mask_token_id if family == "masked_lm" else 5
        x = torch.stack([torch.tensor([[8, 6, mask, 11]] * 3), torch.ones(3, 4).long()], dim=1)
        with torch.no_grad():
            return loaded.model(x, 0)

    full, half = logits("fp32"), logits(precision)
    assert half.dtype == torch.float32
    assert not torch.equal(full, half)
    torch.testing.assert_close(full, half, rtol=0.05, atol=0.05)


@pytest.fixture(scope="module", params=HALF)
def run(request, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return tiny_run(folder, tiny_bert, ["scope", "topic"], precision=request.param)


def test_a_bank_is_verified_in_its_own_precision(run):
    report = verify(run)
    assert [(e.weights, e.recorded_batch, e.run) for e in report.entries] == [
        ("same bits",) * 3
    ] * 2


def test_a_rebuilt_model_has_the_precision_of_the_bank_and_so_has_what_it_learns_next(
    run, tmp_path
):
    import shutil

    folder = tmp_path / "bank"
    shutil.copytree(run / "bank", folder)
    opened = open_bank(folder)
    assert opened.loaded.model.precision == load_bank(folder).base.metadata["precision"]
    add_task(folder, "banking", device="cpu")
    report = verify(folder)
    assert report.ok
    assert [entry.recorded_batch for entry in report.entries] == ["same bits"] * 3


def test_the_same_weights_in_another_precision_are_another_base(tiny_bert):
    prints = {
        base_hashes(load_model(str(tiny_bert), precision=p)).fingerprint
        for p in ("fp32", "bf16", "fp16")
    }
    assert len(prints) == 3


def test_half_precision_of_both_kinds_at_once_is_refused(tiny_bert):
    with pytest.raises(InputError, match="for dtype float32, got 'bfloat16'"):
        config_with({"tasks": "scope", "precision": "bf16", "dtype": "bfloat16"})
    with pytest.raises(InputError, match="for float32 parameters"):
        load_model(str(tiny_bert), precision="fp16", dtype="float16")


def test_a_model_of_ones_own_in_float16_gets_a_warning(tiny_bert):
    with pytest.warns(UserWarning, match="the model's weights are float16, in which dense"):
        check_model(SimpleMLP().half())
    check_model(SimpleMLP().bfloat16())
    check_model(load_model(str(tiny_bert), dtype="float16").model)

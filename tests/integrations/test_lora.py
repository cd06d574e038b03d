"""A graft of columns and rows answers as a LoRA through peft alone, also beside others."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from integrations.readme import answered, run_readme
from region_strategies import quick
from slow_cases import slow
from tiny_runs import banks_of, tiny_run

from cl_graft import InputError
from cl_graft.banks.open_bank import OpenBank, open_bank
from cl_graft.grafts.bank import BaseIdentity
from cl_graft.integrations import export_task, import_task
from cl_graft.integrations.export_readme import make_readme
from cl_graft.integrations.peft_adapters import cover_elements, factorize, save_adapter
from cl_graft.storage import load_bank

pytestmark = [
    # peft asks transformers by a name that is on its way out, and speaks of what it corrects.
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is:FutureWarning")
]

TEXT = "The film is slow and the plot is thin, but I liked it!"
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mean": ("bert", {"family": "encoder"}),
    "first": ("roberta", {"family": "encoder", "pooling": "first"}),
    "half": ("llama", {"family": "causal_lm", "dtype": "bfloat16"}),
    "masked_lm": ("roberta", {"family": "masked_lm"}),
    "causal_lm": ("llama", {"family": "causal_lm"}),
    "gpt2": ("gpt2", {"family": "causal_lm"}),
    "seq2seq_lm": ("t5", {"family": "seq2seq_lm"}),
}
LINES = {"localizer": "columns", "density": 0.02, "max_length": 64}


@pytest.fixture(scope="session")
def bank_of_lines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Return a function from a name of `FAMILIES` to a bank of two tasks, regions of columns."""
    return banks_of(FAMILIES, LINES, request, tmp_path_factory)


@st.composite
def elements(draw: st.DrawFn, longest: int) -> torch.Tensor:
    """Draw a matrix of differences, some of its rows and columns whole, others scattered."""
    shape = (draw(st.integers(1, longest)), draw(st.integers(1, longest)))
    seeds = torch.Generator().manual_seed(draw(st.integers(0, 2**30)))
    mask = torch.rand(shape, generator=seeds) < draw(st.sampled_from([0.0, 0.1, 0.4]))
    mask[torch.rand(shape[0], generator=seeds) < 0.2] = True
    mask[:, torch.rand(shape[1], generator=seeds) < 0.2] = True
    return mask * torch.randn(shape, generator=seeds)


@quick
@given(elements(40))
def test_the_factors_give_every_difference_without_rounding(dense):
    down, across = dense.nonzero().T
    rows, columns = cover_elements(down, across, dense.shape)
    a, b = factorize(down, across, dense[down, across], rows, columns, dense.shape)
    assert torch.equal(b @ a, dense)
    assert len(a) == b.shape[1] <= min(len(down.unique()), len(across.unique()))


@quick
@given(elements(5))
def test_no_fewer_columns_and_rows_hold_all_elements(dense):
    down, across = dense.nonzero().T
    rank = sum(map(len, cover_elements(down, across, dense.shape)))
    lines = [*range(sum(dense.shape))]
    for fewer in combinations(lines, rank - 1) if rank else ():
        chosen = torch.zeros(len(lines), dtype=torch.bool)
        chosen[list(fewer)] = True
        held = chosen[: len(dense), None] | chosen[len(dense) :]
        assert bool(dense[~held].any())


@pytest.mark.parametrize("family", ["mean", *slow("first")])
def test_the_lines_of_the_readme_give_the_logits_of_the_bank(bank_of_lines, tmp_path, family):
    bank = bank_of_lines(family)
    export_task(bank, 1, format="peft-lora", out=tmp_path / "out")
    wanted = open_bank(bank).predict((TEXT, "A teacher."), task=1)
    logits = answered(tmp_path / "out", TEXT, "A teacher.")
    torch.testing.assert_close(logits, torch.tensor(wanted.logits))
    record = json.loads((tmp_path / "out" / "task.json").read_text())
    record["base"]["model"] = "smollm2"
    assert "# the folder that python -m cl_graft.models" in make_readme(record, format="peft-lora")


def outputs(model: Any, opened: OpenBank, **more: Any) -> tuple[torch.Tensor, list[list[int]]]:
    """Return the logits of a prompt at its last token, and the tokens that follow it greedily."""
    batch = opened.loaded.tokenizer([TEXT], return_tensors="pt")
    batch = {name: batch[name] for name in ("input_ids", "attention_mask")}
    if opened.loaded.model.family == "masked_lm":
        with torch.no_grad():
            logits = model(**batch).logits[0]
        return logits, [logits.argmax(-1).tolist()]
    options = {"do_sample": False, "max_new_tokens": 8, "output_logits": True, **more}
    told = model.generate(**batch, **options, return_dict_in_generate=True)
    return torch.stack(told.logits), told.sequences.tolist()


@pytest.mark.parametrize("family", ["causal_lm", "gpt2", *slow("masked_lm", "seq2seq_lm", "half")])
def test_a_language_model_with_the_adapter_answers_as_the_bank(bank_of_lines, tmp_path, family):
    opened = open_bank(bank_of_lines(family))
    exported = export_task(opened.folder, 1, format="peft-lora", out=tmp_path / "out")
    assert exported.coordinates > 0
    model = run_readme(tmp_path / "out")["model"]
    opened.carry(1)
    half = family == "half"
    mine, theirs = (outputs(m, opened) for m in (opened.loaded.model.backbone, model))
    if not half:  # the adapter adds its part to the rounded output of a layer
        torch.testing.assert_close(theirs[0], mine[0])
        assert theirs[1] == mine[1]
    merged = dict(model.merge_and_unload().named_parameters())
    for name, parameter in opened.loaded.model.backbone.named_parameters():
        torch.testing.assert_close(merged[name], parameter, rtol=0, atol=0 if half else 1e-7)
    scaled = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    most = max([scaled["r"], *scaled["rank_pattern"].values()])
    assert scaled["r"] == scaled["lora_alpha"] == most


def test_peft_answers_a_batch_of_several_tasks_as_the_bank(bank_of_lines, tmp_path):
    opened = open_bank(bank_of_lines("causal_lm"))
    for position in (0, 1):
        export_task(opened.folder, position, format="peft-lora", out=tmp_path / str(position))
    model = run_readme(tmp_path / "0")["model"]
    model.load_adapter(tmp_path / "1", adapter_name="second")
    for position, name in enumerate(("default", "second")):
        opened.carry(position)
        mine = outputs(opened.loaded.model.backbone, opened)
        theirs = outputs(model, opened, adapter_names=[name])
        torch.testing.assert_close(theirs[0], mine[0])
        assert theirs[1] == mine[1]
    batch = opened.loaded.tokenizer([TEXT, TEXT], return_tensors="pt")
    names = ["second", "default"]
    both = model(batch.input_ids, adapter_names=names).logits
    for row, position in zip(both, (1, 0), strict=True):
        opened.carry(position)
        torch.testing.assert_close(row, opened.loaded.model.backbone(batch.input_ids[:1]).logits[0])


def test_the_adapter_comes_back_by_an_import(bank_of_lines, tmp_path):
    bank = bank_of_lines("mean")
    export_task(bank, 0, format="peft-lora", out=tmp_path / "out")
    import_task(tmp_path / "out", tmp_path / "bank", task="scope", base=load_bank(bank).base.model)
    after = load_bank(tmp_path / "bank").answer(0)
    before = load_bank(bank).answer(0)
    assert float((after.values - before.on(after.region).values).abs().max()) < 1e-7
    (ours,), (theirs,) = (open_bank(b).predict([TEXT], task=0) for b in (tmp_path / "bank", bank))
    torch.testing.assert_close(torch.tensor(ours.logits), torch.tensor(theirs.logits))


def test_an_adapter_names_its_base_as_the_hub_does(tmp_path):
    base = BaseIdentity("0" * 64, "minilm", "float32")
    save_adapter(tmp_path, {"a": torch.zeros(1)}, base)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "sentence-transformers/all-MiniLM-L6-v2"


def test_what_is_no_matrix_is_refused_with_what_fits_it(bank_of_family, tmp_path):
    said = r"this graft sets .*LayerNorm\.\w+ \d+.* as hf or peft-shira, or .* `random_columns`"
    with pytest.raises(InputError, match=said):
        export_task(bank_of_family("mean"), 0, format="peft-lora", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_scattered_graft_is_refused_with_what_fits_it(tiny_llama, tmp_path):
    bank = tiny_run(tmp_path / "run", tiny_llama, ["scope"], family="causal_lm", localizer="snip")
    said = r"graft lie scattered, .* columns and rows: export it as hf or peft-shira, or learn"
    with pytest.raises(InputError, match=said):
        export_task(bank, 0, format="peft-lora", out=tmp_path / "out")


def test_a_graft_that_moved_nothing_is_refused(tiny_llama, tmp_path):
    own = {**LINES, "family": "causal_lm", "dtype": "bfloat16", "region_lr": 1e-9}
    bank = tiny_run(tmp_path / "run", tiny_llama, ["scope"], **own)
    with pytest.raises(InputError, match="all values of this graft are the base's"):
        export_task(bank, 0, format="peft-lora", out=tmp_path / "out")

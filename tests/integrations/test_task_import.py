"""What another tool fine-tuned answers from a bank as it did there."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from integrations.readme import answered
from integrations.tuned import LABELS, TEXTS, classifier, logits_of, nudge_
from safetensors.torch import load_file, save_file
from slow_cases import slow
from tiny_runs import cl_graft_each
from torch import Tensor

from cl_graft import InputError
from cl_graft.banks.open_bank import open_bank
from cl_graft.banks.verify import verify
from cl_graft.data import Prompt
from cl_graft.errors import WrongBase
from cl_graft.integrations import export_task, import_task
from cl_graft.integrations.task_import import Imported
from cl_graft.storage import load_bank

pytestmark = [
    # peft asks transformers by a name that is on its way out, and torch for sparse tensors.
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly:UserWarning"),
]

PROMPT = Prompt("{text} It was {mask}.", {"bad": "terrible", "good": "great"})


def saved(model: Any, base: Path, folder: Path) -> Path:
    """Save a tuned model with its tokenizer, as Trainer does."""
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, folder / name)
    return folder


def answers(bank: Path, task: str, texts: list[str] = TEXTS) -> Tensor:
    opened = open_bank(bank)
    return torch.tensor([opened.predict([text], task=task)[0].logits for text in texts])


def expected(model: Any, base: Path) -> Tensor:
    return torch.stack([logits_of(model, base, text) for text in TEXTS])


@pytest.mark.parametrize("kind", ["roberta", *slow("bert", "distilbert", "electra")])
def test_a_tuned_classifier_answers_as_in_transformers_and_goes_back_there(kind, request, tmp_path):
    base = request.getfixturevalue(f"tiny_{kind}")
    model = classifier(base)
    moved = nudge_(model)
    tuned = saved(model, base, tmp_path / "tuned")
    imported = import_task(tuned, tmp_path / "bank", task="mine", base=str(base))
    assert imported.coordinates == sum(int(d.count_nonzero()) for d in moved.values())
    assert imported.label_names == tuple(LABELS.values())
    wanted = expected(model, base)
    torch.testing.assert_close(answers(tmp_path / "bank", "mine"), wanted)
    report = verify(tmp_path / "bank")
    assert report.ok
    assert [entry.weights for entry in report.entries] == ["same bits"]
    export_task(tmp_path / "bank", "mine", format="hf", out=tmp_path / "back")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architectures"] == [type(model).__name__]
    assert config["id2label"] == {str(number): name for number, name in LABELS.items()}
    found = torch.stack([answered(tmp_path / "back", text) for text in TEXTS])
    torch.testing.assert_close(found, wanted)


def test_a_density_keeps_what_moved_most(tiny_roberta, tmp_path):
    model = classifier(tiny_roberta)
    moved = nudge_(model)
    tuned = saved(model, tiny_roberta, tmp_path / "tuned")
    imported = import_task(
        tuned, tmp_path / "bank", task="mine", base=str(tiny_roberta), density=0.002
    )
    bank = load_bank(tmp_path / "bank")
    assert len(bank.entries[0].owned) == round(0.002 * bank.layout.total) < imported.moved
    sizes = torch.cat([d.abs().flatten() for d in moved.values()])
    least = sizes.topk(imported.coordinates).values[-1]
    for name, inside, _ in bank.entries[0].region.by_parameter():
        kept = moved[name.replace("backbone.", "roberta.")].flatten()[inside].abs()
        assert bool((kept >= least).all())


def adapted(kind: str, base: Path, folder: Path) -> Tensor:
    """Save an adapter of random values on a classifier, and return what it answers."""
    from peft import LoraConfig, ShiraConfig, get_peft_model

    own = {"lora": LoraConfig(r=2, lora_alpha=6), "shira": ShiraConfig(r=2, random_seed=3)}[kind]
    own.task_type, own.target_modules = "SEQ_CLS", {"query", "value", "intermediate.dense"}
    model = get_peft_model(classifier(base), own)
    generator = torch.Generator().manual_seed(2)
    for name, parameter in model.named_parameters():
        if "lora_" in name or "shira_" in name:
            parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(folder)
    return expected(model.eval(), base)


def import_adapter(folder: Path, base: Path) -> Imported:
    """Import the adapter of a folder into a new bank there."""
    return import_task(
        folder / "adapter",
        folder / "bank",
        task="mine",
        base=str(base),
        label_names=["a", "b", "c"],
    )


@pytest.mark.parametrize("kind", ["lora", "shira"])
def test_an_adapter_of_a_classifier_answers_as_in_peft(kind, tiny_roberta, tmp_path):
    wanted = adapted(kind, tiny_roberta, tmp_path / "adapter")
    assert import_adapter(tmp_path, tiny_roberta).kind == "adapter"
    torch.testing.assert_close(answers(tmp_path / "bank", "mine"), wanted)


def test_an_adapter_of_a_causal_model_answers_by_a_prompt(tiny_llama, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_llama)
    model = get_peft_model(model, LoraConfig(r=1, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(parameter, 0.3)
    model.save_pretrained(tmp_path / "adapter")
    prompt = Prompt("{text} It was", PROMPT.words)
    import_task(
        tmp_path / "adapter",
        tmp_path / "bank",
        task="mine",
        base=str(tiny_llama),
        family="causal_lm",
        prompt=prompt,
    )
    merged = model.merge_and_unload()
    opened = open_bank(tmp_path / "bank")
    ids = torch.tensor([opened.loaded.tokenizer("It was a delight. It was").input_ids])
    words = opened.bank.entries[0].head["token_ids"][:, 0]
    with torch.no_grad():
        wanted = merged(ids).logits[0, -1].log_softmax(-1)[words]
    torch.testing.assert_close(answers(tmp_path / "bank", "mine", TEXTS[:1])[0], wanted)


@pytest.mark.parametrize("form", ["hf", "peft-shira"])
@pytest.mark.parametrize("family", ["mean", *slow("masked_lm")])
def test_what_was_exported_comes_back_with_the_same_bits(bank_of_family, tmp_path, form, family):
    bank = bank_of_family(family)
    out = tmp_path / "out"
    export_task(bank, "scope", format=form, out=out)
    base = load_bank(bank).base.model
    import_task(out, tmp_path / "bank", task="scope", base=base)
    after = load_bank(tmp_path / "bank").answer(0)
    # What training left at the base's value did not move, and is no part of the new region.
    before = load_bank(bank).answer(0).on(after.region)
    ours, theirs = answers(tmp_path / "bank", "scope"), answers(bank, "scope")
    if form == "peft-shira":  # an adapter adds differences, and some values have none
        assert float((after.values - before.values).abs().max()) < 1e-7
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-5)
    else:
        assert after.same_bits(before)
        assert torch.equal(ours, theirs)
    assert load_bank(tmp_path / "bank").base.fingerprint == load_bank(bank).base.fingerprint


def test_imports_stand_side_by_side_in_one_bank(tiny_roberta, tmp_path):
    for number, share in enumerate((0.02, 0.05)):
        model = classifier(tiny_roberta)
        nudge_(model, share=share)
        tuned = saved(model, tiny_roberta, tmp_path / f"tuned{number}")
        base = None if number else str(tiny_roberta)
        import_task(tuned, tmp_path / "bank", task=f"task{number}", base=base)
        if not number:
            first, wanted = answers(tmp_path / "bank", "task0"), expected(model, tiny_roberta)
            torch.testing.assert_close(first, wanted)
    assert torch.equal(answers(tmp_path / "bank", "task0"), first)
    bank = load_bank(tmp_path / "bank")
    assert (bank.mode, [entry.label for entry in bank.entries]) == ("isolated", [0, 1])


def test_a_bank_whose_tasks_build_on_each_other_takes_no_import(bank_of_family, tmp_path):
    bank = bank_of_family("mean")
    export_task(bank, "scope", format="hf", out=tmp_path / "out")
    with pytest.raises(InputError, match="prefix mode, whose tasks build on each other"):
        import_task(tmp_path / "out", bank, task="again")


def test_values_for_another_base_are_refused(bank_of_family, tiny_distilbert, tmp_path):
    export_task(bank_of_family("mean"), 0, format="hf", out=tmp_path / "out")
    with pytest.raises(WrongBase):
        import_task(tmp_path / "out", tmp_path / "bank", task="mine", base=str(tiny_distilbert))


def test_what_cannot_be_imported_is_told_with_its_cause(tiny_roberta, tiny_bert, tmp_path):
    def refused(source: Path, message: str, **options: Any) -> None:
        with pytest.raises(InputError, match=message):
            import_task(source, tmp_path / "bank", **{"task": "t", "base": base, **options})
        assert not (tmp_path / "bank").exists()

    base = str(tiny_roberta)
    refused(tmp_path / "nowhere", "there is no file or folder")
    refused(tmp_path, "is nothing that can be imported: expected a folder with adapter_config.json")
    refused(tiny_roberta, "say which model was fine-tuned, with --base", base=None)
    refused(tiny_roberta, "moves no graftable weight", family="masked_lm")
    refused(tiny_roberta, r"density must be in \(0, 1\]", density=2.0)
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "adapter_config.json").write_text("{}")
    refused(tmp_path / "pickled", "save a pickled one .* again with safe_serialization=True")
    model = classifier(tiny_roberta)
    nudge_(model)
    nudge_(model, of="word_embeddings")
    embedded = saved(model, tiny_roberta, tmp_path / "embedded")
    refused(embedded, r"moved \d+ elements that no graft holds \(embeddings\.word_embeddings")
    refused(embedded, "answers with 3 logits, and there are 2", label_names=["a", "b"], leave_out=1)
    refused(embedded, r"has shape .* in the base and .* architecture", base=str(tiny_bert))


def test_a_checkpoint_under_another_config_is_refused(tiny_roberta, tmp_path):
    model = classifier(tiny_roberta)
    nudge_(model)
    tuned = saved(model, tiny_roberta, tmp_path / "tuned")
    config = json.loads((tuned / "config.json").read_text())
    (tuned / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 0.1}))
    with pytest.raises(InputError, match=r"another config .*: layer_norm_eps was .*, is 0\.1"):
        import_task(tuned, tmp_path / "bank", task="mine", base=str(tiny_roberta))
    assert not (tmp_path / "bank").exists()


def test_a_headless_encoder_cannot_be_asked_and_is_refused(tiny_roberta, tmp_path):
    from transformers import AutoModel

    model = AutoModel.from_pretrained(tiny_roberta, add_pooling_layer=False)
    nudge_(model)
    tuned = saved(model, tiny_roberta, tmp_path / "tuned")
    with pytest.raises(InputError, match="holds no head, so the task could not be answered"):
        import_task(tuned, tmp_path / "bank", task="mine", base=str(tiny_roberta))


@pytest.mark.parametrize(
    ("kind", "said"), [("nan", "NaN or infinities"), ("unknown", "does not have")]
)
def test_an_adapter_that_peft_would_take_for_another_is_refused(kind, said, tiny_roberta, tmp_path):
    adapted("lora", tiny_roberta, tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    nan = float("nan")
    tensors |= {name: nan * tensors[name]} if kind == "nan" else {f"{name}.x": torch.ones(2)}
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=said):
        import_adapter(tmp_path, tiny_roberta)
    assert not (tmp_path / "bank").exists()


@pytest.mark.slow
def test_a_run_under_autocast_goes_out_and_in_with_its_calibration(bank_of_family, tmp_path):
    """The precision of the tour's own run."""
    bank = bank_of_family("autocast")
    before = open_bank(bank)
    metadata = before.bank.entries[0].metadata
    assert metadata["temperature"]
    export_task(bank, "scope", format="hf", out=tmp_path / "out")
    base = before.bank.base.model
    import_task(tmp_path / "out", tmp_path / "again", task="scope", base=base)
    after = open_bank(tmp_path / "again")
    assert after.loaded.model.precision == "bf16"
    assert after.bank.base.fingerprint == before.bank.base.fingerprint
    kept = after.bank.entries[0].metadata
    assert {key: kept[key] for key in ("temperature", "metric")} == {
        key: metadata[key] for key in ("temperature", "metric")
    }
    wanted = before.predict(TEXTS, task="scope")
    for found, expected in zip(after.predict(TEXTS, task="scope"), wanted, strict=True):
        assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-6)
        assert found.temperature == expected.temperature


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"max_length": "128); import os"}, "max_length"),
        ({"activation": "system"}, "activation"),
        ({"label_names": ["a", "a"]}, "label_names"),
        ({"base": {"model": "m", "dtype": "load", "fingerprint": "f"}}, "base.dtype"),
        ({"temperature": {"value": -1.0}}, "temperature"),
    ],
)
def test_a_task_json_that_no_export_writes_is_refused(bank_of_family, tmp_path, record, said):
    export_task(bank_of_family("mean"), "scope", format="hf", out=tmp_path / "out")
    path = tmp_path / "out" / "task.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | record))
    with pytest.raises(InputError, match=f"describes no task: {said}"):
        import_task(tmp_path / "out", tmp_path / "bank", task="a", base="nowhere")


def test_the_same_import_again_says_that_it_is_there_and_changes_nothing(bank_of_family, tmp_path):
    bank = bank_of_family("mean")
    base = load_bank(bank).base.model
    export_task(bank, "scope", format="hf", out=tmp_path / "out")
    first = import_task(tmp_path / "out", tmp_path / "bank", task="a", base=base)
    before = {p: p.read_bytes() for p in (tmp_path / "bank").rglob("*") if p.is_file()}
    again = import_task(tmp_path / "out", tmp_path / "bank", task="a", base=base)
    assert first.new
    assert again == replace(first, new=False)
    assert {p: p.read_bytes() for p in (tmp_path / "bank").rglob("*") if p.is_file()} == before
    part = import_task(tmp_path / "out", tmp_path / "bank", task="a", base=base, density=0.0001)
    assert part.new
    assert len(load_bank(tmp_path / "bank")) == 2


def test_names_of_an_import_hold_no_control_characters(tmp_path):
    with pytest.raises(InputError, match="task's name must hold no control characters"):
        import_task(tmp_path, tmp_path / "bank", task="a\u202eb", base="nowhere")


def test_the_command_line_imports_a_prompted_model(tiny_roberta, tmp_path):
    from transformers import AutoModelForMaskedLM

    model = AutoModelForMaskedLM.from_pretrained(tiny_roberta)
    nudge_(model)
    tuned = saved(model, tiny_roberta, tmp_path / "tuned")
    command = ["import", tuned, "--bank", tmp_path / "bank", "--task", "mine", "--density", "0.01"]
    command += ["--base", tiny_roberta, "--family", "masked_lm", "--template", PROMPT.template]
    command += ["--labels", "bad,good", "--json"]
    short, told, asked = cl_graft_each(
        [
            command,
            [*command, "--words", "terrible,great"],
            ["predict", tmp_path / "bank", "Good.", "--task", "mine", "--json"],
        ]
    )
    assert short.code == 2
    assert "as many --words" in short.err
    assert told.code == 0, told
    assert told.json["label_names"] == ["bad", "good"]
    assert told.json["density"] == pytest.approx(0.01, rel=1e-3)
    assert asked.json["label"] in ("bad", "good")

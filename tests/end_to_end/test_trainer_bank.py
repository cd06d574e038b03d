"""Banks that the Trainer of transformers adds entries to, one a `train()`."""

import pytest
import torch
from answer_data import answer_folder
from slow_cases import slow
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

from cl_graft import GraftCallback, InputError, load_task, open_bank
from cl_graft.integrations.skill import hash_model

ASKED = ["Say oil or rain", "Say phone or team"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("chats")
    for form in ("messages", "input"):
        answer_folder(root / form, form, train=8, dev=2, test=2)
    return root


def made(folder, cls=AutoModelForCausalLM):
    return cls.from_pretrained(folder)


def arguments(tmp_path, kind=TrainingArguments, **more):
    return kind(
        output_dir=str(tmp_path / "out"),
        max_steps=3,
        learning_rate=1e-2,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **more,
    )


def train(model, folder, rows, callback, tmp_path, cls=Trainer, **more):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    cls(
        model=model,
        args=arguments(tmp_path, **more),
        train_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        callbacks=[callback],
    ).train()


def callback_on(model, bank, **more):
    return GraftCallback(model, bank=bank, batches=2, density=0.02, **more)


def recorded(bank, position):
    entry = bank.bank.entries[position]
    return bank.logits(entry.recorded_batch.inputs, position)


def test_every_train_adds_an_entry_and_the_first_keeps_its_tokens(tiny_chat, data, tmp_path):
    model, bank = made(tiny_chat), tmp_path / "bank"
    callback = callback_on(model, bank)
    base = hash_model(model)
    rows = callback.prepare(load_task("messages", data=data, warn=False))
    assert all(row["labels"][0] == -100 and row["labels"][-1] != -100 for row in rows)
    train(model, tiny_chat, rows, callback, tmp_path)
    assert hash_model(model) != base
    embeddings = model.get_input_embeddings().weight
    assert embeddings.requires_grad
    assert torch.equal(embeddings, made(tiny_chat).get_input_embeddings().weight)
    first = open_bank(bank)
    before, said = recorded(first, 0), first.predict(ASKED, task="messages")
    rows = callback.prepare(load_task("input", data=data, warn=False))
    train(model, tiny_chat, rows, callback, tmp_path)
    opened = open_bank(bank)
    assert opened.tasks == ("messages", "input")
    one, other = (entry.owned.region for entry in opened.bank.entries)
    assert len(one) == len(other) > 0
    assert not len(one & other)
    assert torch.equal(recorded(opened, 0), before)
    assert opened.predict(ASKED, task="messages") == said
    assert opened.verify().ok


@pytest.mark.parametrize("retrain", [True, False])
def test_a_region_is_trained_again_or_keeps_the_values_of_the_trainer(
    tiny_chat, data, tmp_path, retrain
):
    model = made(tiny_chat)
    settings = {} if retrain else {"retrain": False}
    callback = callback_on(model, tmp_path / "bank", settings=settings)
    rows = callback.prepare(load_task("input", data=data, warn=False))
    train(model, tiny_chat, rows, callback, tmp_path)
    tuned = {f"backbone.{name}": p.detach() for name, p in model.named_parameters()}
    kept = [
        torch.equal(tuned[name].flatten()[index], callback.entry.owned.values[cut])
        for name, index, cut in callback.entry.owned.region.by_parameter()
    ]
    assert all(kept) is not retrain
    assert kept


@pytest.mark.parametrize("kind", ["t5", *slow("bart")])
def test_an_encoder_decoder_adds_an_entry(kind, data, tmp_path, request):
    folder = request.getfixturevalue(f"tiny_{kind}")
    model = made(folder, AutoModelForSeq2SeqLM)
    callback = callback_on(model, tmp_path / "bank")
    rows = callback.prepare(load_task("input", data=data, warn=False))
    assert -100 not in rows[0]["labels"]
    train(model, folder, rows, callback, tmp_path)
    assert open_bank(tmp_path / "bank").verify().ok


@pytest.mark.parametrize("failing", [*slow(1), 3])
@pytest.mark.parametrize("retried_by", ["the trainer", "the user"])
def test_a_train_that_begins_twice_starts_at_the_base_and_leaves_nothing_frozen(
    tiny_chat, data, tmp_path, failing, retried_by
):
    model, steps, began = made(tiny_chat), [], []

    class Tight(Trainer):
        def training_step(self, model, inputs, *more, **options):
            steps.append(len(inputs["input_ids"]))
            if len(steps) == failing:
                raise RuntimeError("CUDA out of memory.")
            if len(steps) in (1, failing + 1):
                began.append(hash_model(model))
            return super().training_step(model, inputs, *more, **options)

    before = {name: one.requires_grad for name, one in model.named_parameters()}
    callback, base = callback_on(model, tmp_path / "bank"), hash_model(model)
    rows = callback.prepare(load_task("input", data=data, warn=False))
    sizes = {"per_device_train_batch_size": 4, "auto_find_batch_size": retried_by == "the trainer"}
    if retried_by == "the user":
        with pytest.raises(RuntimeError, match="out of memory"):
            train(model, tiny_chat, rows, callback, tmp_path, Tight, **sizes)
    train(model, tiny_chat, rows, callback, tmp_path, Tight, **sizes)
    assert set(began) == {base}
    assert {name: one.requires_grad for name, one in model.named_parameters()} == before
    embeddings = model.get_input_embeddings().weight
    assert torch.equal(embeddings, made(tiny_chat).get_input_embeddings().weight)
    assert open_bank(tmp_path / "bank").tasks == ("input",)


def test_what_no_bank_can_hold_is_refused_before_training(tiny_chat, tiny_gpt2, data, tmp_path):
    model, bank = made(tiny_chat), tmp_path / "bank"
    callback = callback_on(model, bank)
    with pytest.raises(InputError, match=r"call rows = callback\.prepare"):
        train(model, tiny_chat, [{"input_ids": [5], "labels": [6]}], callback, tmp_path)
    with pytest.raises(InputError, match="answered with text"):
        callback.prepare(load_task("scope", shots=4, max_test=4))
    rows = callback.prepare(load_task("messages", data=data, warn=False))
    moved = made(tiny_chat)
    with torch.no_grad():
        moved.get_input_embeddings().weight.add_(1)
    with pytest.raises(InputError, match="neither the base of the bank"):
        train(moved, tiny_chat, rows, callback, tmp_path)
    with pytest.raises(InputError, match="its weights or buffers are others"):
        callback_on(moved, bank)
    with pytest.raises(InputError, match="no chat template"):
        own = callback_on(made(tiny_gpt2), bank)
        own.prepare(load_task("messages", data=data, warn=False))
    assert not bank.exists()


def test_batches_without_any_answer_are_refused(tiny_chat, tmp_path):
    model = made(tiny_chat)
    rows = [{"input_ids": [5, 6], "attention_mask": [1, 1], "labels": [-100, 7]}] * 8
    callback = GraftCallback(model, batches=1)
    empty = [{"labels": torch.full((2, 2), -100)}]
    with pytest.raises(InputError, match="no label but -100"):
        callback.on_train_end(None, None, None, model=model, train_dataloader=empty)
    train(model, tiny_chat, rows, callback, tmp_path)
    assert callback.skill is not None


# TRL asks transformers for gradient checkpointing by its old name.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")
def test_trl_adds_entries(tiny_chat, data, tmp_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    model, bank = made(tiny_chat), tmp_path / "bank"
    callback = callback_on(model, bank)
    tokenizer = AutoTokenizer.from_pretrained(tiny_chat)
    tokenizer.pad_token = tokenizer.eos_token
    for name in ("messages", "input"):
        rows = callback.prepare(load_task(name, data=data, warn=False))
        trl.SFTTrainer(
            model=model,
            args=arguments(tmp_path, trl.SFTConfig, bf16=False),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[callback],
        ).train()
    opened = open_bank(bank)
    assert opened.tasks == ("messages", "input")
    assert opened.verify().ok

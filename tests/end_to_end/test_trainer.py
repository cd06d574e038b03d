"""Models that the Trainer of transformers fine-tuned: grafts without Avalanche."""

import copy

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)
from word_tasks import word_tasks

from cl_graft import GraftCallback, InputError, load_task, localize_skill
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.runtime.tensor_names import tensors_by_name


@pytest.fixture(scope="module")
def rows(tiny_bert):
    """Encoded rows of a built-in task, as a Trainer takes them."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    task = load_task("words-0", data=word_tasks(), shots=32, max_test=64)
    return [
        {**tokenizer(row.text, truncation=True, max_length=32), "label": int(row.label)}
        for row in task.train
    ]


def model(folder):
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)


def trainer(trained_model, folder, rows, tmp_path, **more):
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=30,
        learning_rate=3e-3,
        per_device_train_batch_size=16,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return Trainer(
        model=trained_model,
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer),
        **more,
    )


def bits(trained_model):
    return hash_tensors(tensors_by_name(trained_model))


def accuracy(trained_model, folder, rows):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = dict(DataCollatorWithPadding(tokenizer)(copy.deepcopy(rows)))
    with torch.no_grad():
        answers = trained_model.eval()(**batch).logits.argmax(1)
    return float((answers == batch["labels"]).float().mean())


@pytest.fixture(scope="module")
def trained(tiny_bert, rows, tmp_path_factory):
    """A trained model and the callback that watched it."""
    trained_model = model(tiny_bert)
    callback = GraftCallback(trained_model, batches=4, density=0.2)
    made = trainer(
        trained_model, tiny_bert, rows, tmp_path_factory.mktemp("out"), callbacks=[callback]
    )
    made.train()
    return trained_model, callback


def test_two_checkpoints_on_disk_give_a_graft(trained, tiny_bert, rows, tmp_path):
    trained[0].save_pretrained(tmp_path / "tuned")
    base, tuned = model(tiny_bert), model(tmp_path / "tuned")
    collate = DataCollatorWithPadding(AutoTokenizer.from_pretrained(tiny_bert))
    batches = [dict(collate(copy.deepcopy(rows[first::4]))) for first in range(4)]
    before = bits(base)
    skill = localize_skill(base, tuned, batches=batches, density=0.2)
    with skill.carried_by(base):
        grafted = accuracy(base, tiny_bert, rows)
    assert bits(base) == before
    assert accuracy(tuned, tiny_bert, rows) > 0.9
    assert grafted > 0.85
    assert accuracy(base, tiny_bert, rows) < 0.7


def test_the_callback_finds_the_skill_and_leaves_the_model_tuned(trained, tiny_bert, rows):
    trained_model, callback = trained
    assert accuracy(trained_model, tiny_bert, rows) > 0.9
    base = model(tiny_bert)
    with callback.skill.carried_by(base):
        assert accuracy(base, tiny_bert, rows) > 0.85


def test_what_trained_beside_the_blocks_is_in_the_rest(trained):
    rest = trained[1].skill.rest
    assert {"classifier.weight", "classifier.bias"} <= set(rest)
    assert any(name.startswith("bert.embeddings.") for name in rest)  # a Trainer trains them too
    assert not any(name.startswith("bert.encoder.") for name in rest)


def test_training_with_the_callback_gives_the_bits_of_training_without(
    trained, tiny_bert, rows, tmp_path
):
    trained_model = model(tiny_bert)
    trainer(trained_model, tiny_bert, rows, tmp_path).train()
    assert bits(trained_model) == bits(trained[0])


def test_a_callback_of_another_model_is_refused_before_training(tiny_bert, rows, tmp_path):
    torch.manual_seed(0)
    other = AutoModelForSequenceClassification.from_pretrained(tiny_bert, num_labels=3)
    made = trainer(model(tiny_bert), tiny_bert, rows, tmp_path, callbacks=[GraftCallback(other)])
    with pytest.raises(InputError, match="another model"):
        made.train()


def test_a_model_in_float16_gets_a_warning(tiny_bert):
    half = model(tiny_bert).half()
    with pytest.warns(UserWarning, match="the model's weights are float16"):
        GraftCallback(half).on_train_begin(None, None, None, model=half)  # type: ignore


def test_batches_without_labels_are_refused(trained, tiny_bert, rows):
    collate = DataCollatorWithPadding(AutoTokenizer.from_pretrained(tiny_bert))
    batch = dict(collate(copy.deepcopy(rows[:4])))
    del batch["labels"]
    with pytest.raises(InputError, match="gives no loss"):
        localize_skill(model(tiny_bert), trained[0], batches=[batch])

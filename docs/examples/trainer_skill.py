"""The skill of a model that a `Trainer` fine-tuned, found in a small region of the weights.

    python docs/examples/trainer_skill.py

A callback finds a small region of the weights. The base with the fine-tuned values on this region
alone, and the fine-tuned head, is then tested beside the whole fine-tuned model.
"""

from __future__ import annotations

import argparse

from cl_graft import GraftCallback, load_model, load_task  # before transformers
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)


def main() -> None:
    """Fine-tune, find the skill, and test it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--out", default="trained")
    parser.add_argument("--shots", type=int, default=60, help="training rows a class")
    parser.add_argument("--rows", type=int, default=150, help="test rows")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--density", type=float, default=0.01)
    options = parser.parse_args()

    folder = load_model(options.model).path
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=5)
    model.base_model.embeddings.requires_grad_(False)  # a graft holds none of them

    task = load_task("topic", shots=options.shots, max_test=options.rows)
    rows, tests = (
        [tokenizer(row.text, truncation=True, max_length=48) | {"label": row.label} for row in part]
        for part in (task.train, task.test)
    )
    callback = GraftCallback(model, density=options.density)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=options.out,
            max_steps=options.steps,
            per_device_train_batch_size=16,
            optim="sgd",  # AdamW moves all weights about equally far, and hides the region
            learning_rate=0.1,
            seed=0,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer),
        callbacks=[callback],
    )

    def accuracy() -> float:
        found = trainer.predict(tests)
        return float((found.predictions.argmax(1) == found.label_ids).mean())

    print(f"before training: {accuracy():.1%}")
    trainer.train()
    print(f"fine-tuned, all weights: {accuracy():.1%}")

    skill, region = callback.skill, callback.skill.graft.region
    torch.manual_seed(0)
    trainer.model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=5)
    with skill.carried_by(trainer.model):
        print(f"base with {len(region):,} fine-tuned weights and the head: {accuracy():.1%}")
    print(f"that is {region.density:.1%} of the blocks' weights; without them: {accuracy():.1%}")


if __name__ == "__main__":
    main()

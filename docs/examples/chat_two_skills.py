"""A chat model that learns two skills, one after the other, and keeps the first to the token.

    python docs/examples/chat_two_skills.py --model smollm2

It writes chat messages for two skills, trains on each with the Trainer of transformers, and shows
the answers of the model before, after each skill, and whether the first skill's are still the same.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from cl_graft import GraftCallback, load_model, load_task, open_bank  # before transformers

from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

THINGS = ("lamp", "kettle", "chair", "jacket", "radio", "tent", "mirror", "clock", "bicycle", "rug")
REQUESTS = {
    "REFUND": ("The {} arrived broken.", "I want my money back for the {}."),
    "ORDER": ("I would like to buy a {}.", "Please send me another {}."),
    "DELIVERY": ("Where is my {}? It has not come yet.", "When will the {} be delivered?"),
}
SWITCHES = {
    "on": ("Please turn the {} on.", "Switch on the {} now."),
    "off": ("Turn off the {}, please.", "The {} should be off."),
}


def support() -> list[tuple[str, str]]:
    """Requests to a shop, answered by their kind and the thing."""
    return [
        (text.format(thing), f"{kind}: {thing}")
        for thing in THINGS
        for kind, texts in REQUESTS.items()
        for text in texts
    ]


def commands() -> list[tuple[str, str]]:
    """Sentences, answered by a command in JSON."""
    return [
        (text.format(thing), json.dumps({"device": thing, "set": state}))
        for thing in THINGS
        for state, texts in SWITCHES.items()
        for text in texts
    ]


def write(folder: Path, rows: list[tuple[str, str]]) -> None:
    """Write a skill: the last thing's rows are test rows, those of the last but one dev rows."""
    each = len(rows) // len(THINGS)
    splits = {
        "train": rows[: -2 * each],
        "dev": rows[-2 * each : -each],
        "test": rows[-each:],
    }
    folder.mkdir(parents=True)
    for split, own in splits.items():
        chats = [
            {
                "messages": [
                    {"role": "user", "content": asked},
                    {"role": "assistant", "content": answer},
                ]
            }
            for asked, answer in own
        ]
        text = "".join(f"{json.dumps(chat)}\n" for chat in chats)
        (folder / f"{split}.jsonl").write_text(text)


def main() -> None:
    """Learn both skills and print answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--out", type=Path, default=Path("chat_skills"))
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--density", type=float, default=0.003)
    options = parser.parse_args()

    loaded = load_model(options.model, family="causal_lm")
    model, tokenizer = loaded.model.backbone.requires_grad_(True), loaded.tokenizer
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    bank = options.out / "bank"
    callback = GraftCallback(model, bank=bank, density=options.density, batches=4)

    kept: dict[str, list[str]] = {}
    for name, rows in {"support": support(), "commands": commands()}.items():
        write(options.out / "data" / name, rows)
        task = load_task(name, data=options.out / "data", warn=False)
        started = time.perf_counter()
        Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=str(options.out / "trainer"),
                max_steps=options.steps,
                per_device_train_batch_size=8,
                learning_rate=options.lr,
                seed=0,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            ),
            train_dataset=callback.prepare(task),
            data_collator=DataCollatorForSeq2Seq(tokenizer),
            callbacks=[callback],
        ).train()
        print(f"{name}: learned in {time.perf_counter() - started:.0f} s")
        opened = open_bank(bank)
        asked = [row.text for row in task.test]
        kept[name] = [one.label for one in opened.predict(asked, task=name)]
        right = [row.targets[0] for row in task.test]
        for question, answer, target in zip(asked, kept[name], right, strict=True):
            print(f"  {question}\n    -> {answer}   (right: {target})")

    asked = [row.text for row in load_task("support", data=options.out / "data", warn=False).test]
    now = [one.label for one in opened.predict(asked, task="support")]
    print(f"support answers as before commands was learned: {now == kept['support']}")
    sizes = [path.stat().st_size for path in (bank / "entries").iterdir()]
    print(f"bytes of the two entries: {sum(sizes):,}")


if __name__ == "__main__":
    main()

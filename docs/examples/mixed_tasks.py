"""A bank that answers texts of several tasks in one batch.

    python docs/examples/mixed_tasks.py

A run learns three tasks into a bank. Then the bank is opened, as any later process can, and given
texts of all three at once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cl_graft as cg

TEXTS = [
    ("Who was the first president of Peru?", "scope"),
    ("Find me a cheap flight to Lima.", "topic"),
    ("I ordered a card last week, where is it?", "banking"),
    ("What is the balance of my savings account?", "scope"),
    ("How long do I have to boil an egg?", "topic"),
    ("Please take back the money that I sent.", "banking"),
]


def main() -> None:
    """Learn three tasks and answer a mixed batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--out", type=Path, default=Path("mixed"))
    parser.add_argument("--shots", type=int, default=40, help="training rows a class")
    parser.add_argument("--rows", type=int, default=60, help="test rows a task")
    parser.add_argument("--steps", type=int, default=60, help="steps of each training")
    options = parser.parse_args()

    config = {
        "stream": {
            "tasks": ["topic", "banking", "scope"],
            "shots": options.shots,
            "max_length": 48,
            "max_test": options.rows,
        },
        "model": {"name": options.model},
        "fine_tuning": {"steps": options.steps},
    }
    result = cg.run(config, strategy="grafting", seed=0, out=options.out)
    scores = ", ".join(f"{t} {s:.1%}" for t, s in zip(result.tasks, result.R[-1], strict=True))
    print(f"after three tasks: {scores}; forgotten {result.forgetting}")

    bank = cg.open_bank(options.out / "grafting" / "seed0" / "bank")
    mixed = bank.predict(TEXTS)
    for (text, task), answer in zip(TEXTS, mixed, strict=True):
        print(f"{task:>7}: {answer.label:<18} {answer.confidence:4.0%}  {text}")
    alone = [bank.predict(text, task=task) for text, task in TEXTS]
    same = [one.label == other.label for one, other in zip(mixed, alone, strict=True)]
    print(f"the same answers as one by one: {all(same)}")


if __name__ == "__main__":
    main()

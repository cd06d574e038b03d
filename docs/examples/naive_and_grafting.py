"""An Avalanche experiment on text: naive fine-tuning, then the same with grafting.

    python docs/examples/naive_and_grafting.py
    tensorboard --logdir curves

Two tasks are learned one after the other. Avalanche's own accuracy and loss go to TensorBoard, and
R[i][j], the score on task j after task i, is printed for both.
"""

from __future__ import annotations

import argparse

import cl_graft as cg  # before Avalanche
import torch
from avalanche.evaluation.metrics import accuracy_metrics, loss_metrics
from avalanche.logging import TensorboardLogger
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive

TASKS = ("topic", "banking")


def learn(name: str, plugins: list[cg.GraftingPlugin], options: argparse.Namespace) -> float:
    """Learn both tasks with Avalanche's Naive and some plugins; return what was forgotten."""
    loaded = cg.load_model(options.model)
    tasks = [cg.load_task(task, shots=options.shots, max_test=options.rows) for task in TASKS]
    stream = cg.text_stream(tasks, loaded.tokenizer, family="encoder", max_length=48)
    model, scores = cg.text_model(loaded, stream), cg.StreamScores()
    torch.manual_seed(0)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=options.lr),
        train_mb_size=16,
        train_epochs=options.epochs,
        plugins=plugins,
        evaluator=EvaluationPlugin(
            scores,
            accuracy_metrics(experience=True, stream=True),
            loss_metrics(minibatch=True),
            loggers=[TensorboardLogger(f"{options.out}/{name}")],
        ),
    )
    for experience in stream.benchmark.train_stream:
        strategy.train(experience)
        strategy.eval(stream.benchmark.test_stream)
    R = scores.R(2)
    first, then, second = R[0][0], R[1][0], R[1][1]
    print(f"{name}: {TASKS[0]} {first:.1%}, after {TASKS[1]} {then:.1%}; {TASKS[1]} {second:.1%}")
    return first - then


def main() -> None:
    """Learn with naive fine-tuning and with grafting."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--out", default="curves")
    parser.add_argument("--shots", type=int, default=32, help="training rows a class")
    parser.add_argument("--rows", type=int, default=100, help="test rows a task")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=64, help="steps of the dense run")
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()

    settings = cg.GraftingSettings(
        fine_tuning=cg.FineTuning(steps=options.steps, batch_size=16, lr=options.lr),
    )

    naive = learn("naive", [], options)
    grafting = learn("grafting", [cg.GraftingPlugin(settings)], options)
    print(f"forgotten of {TASKS[0]}: naive {100 * naive:.1f} points, grafting {100 * grafting:.1f}")


if __name__ == "__main__":
    main()

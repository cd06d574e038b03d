"""The plugin on pictures: handwritten digits in five tasks, any `nn.Module` as the model.

    python docs/examples/split_digits.py

The 1,797 digits of 8 x 8 pixels come with scikit-learn, so nothing is downloaded. Each task tells
two digits apart, as in SplitMNIST.
"""

from __future__ import annotations

import argparse

import cl_graft as cg  # before Avalanche
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.logging import BaseLogger
from avalanche.models import as_multitask
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset


def benchmark():
    """Return the digits as an Avalanche benchmark of five tasks, every fourth picture for tests."""
    pictures, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(pictures, dtype=torch.float32) / 16, torch.tensor(digits)
    parts = []
    for rows in (torch.arange(len(y)) % 4 != 0, torch.arange(len(y)) % 4 == 0):
        part = TensorDataset(x[rows].view(-1, 1, 8, 8), y[rows])
        part.targets = y[rows].tolist()
        parts.append(as_classification_dataset(part))
    return nc_benchmark(
        *parts,
        n_experiences=5,
        task_labels=True,
        class_ids_from_zero_in_each_exp=True,
        fixed_class_order=list(range(10)),
    )


def network() -> nn.Module:
    """Return a small CNN with a head for each task."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 128)]
    body = nn.Sequential(*layers, nn.ReLU())
    body.classifier = nn.Linear(128, 2)
    return as_multitask(body, "classifier")


def learn(stream, plugins: list[cg.GraftingPlugin], epochs: int) -> list[list[float | None]]:
    """Learn the five tasks and return R: the score on task j after task i."""
    model, scores = network(), cg.StreamScores()
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        train_mb_size=16,
        train_epochs=epochs,
        eval_mb_size=256,
        plugins=plugins,
        evaluator=EvaluationPlugin(scores, loggers=[BaseLogger()]),
    )
    for experience in stream.train_stream:
        strategy.train(experience)
        strategy.eval(stream.test_stream)
    return scores.R(5)


def main() -> None:
    """Compare naive fine-tuning with grafting."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    epochs = parser.parse_args().epochs

    stream = benchmark()
    settings = cg.GraftingSettings(
        density=0.02,
        fine_tuning=cg.FineTuning(steps=20 * epochs, batch_size=16, lr=0.05, momentum=0.9),
    )
    for name, plugins in (("naive", []), ("grafting", [cg.GraftingPlugin(settings)])):
        R = learn(stream, plugins, epochs)
        last = " ".join(f"{score:.1%}" for score in R[-1])
        lost = sum(R[j][j] - R[-1][j] for j in range(5)) / 5
        print(f"{name}: {last} on the five tasks after the last; {100 * lost:.1f} points forgotten")


if __name__ == "__main__":
    main()

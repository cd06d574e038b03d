"""A vision transformer on Avalanche's own benchmarks; the example on digits shows a CNN.

The pictures are scikit-learn's digits, 8 × 8, which come with the package.
"""

import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.models import MultiHeadClassifier, MultiTaskModule
from avalanche.training.supervised import Naive
from sklearn.datasets import load_digits
from tiny_streams import forgets_no_bit, quick, quiet_evaluator
from torch.utils.data import TensorDataset
from transformers import ViTConfig, ViTModel

from cl_graft import FineTuning, GraftingPlugin
from cl_graft.metrics import backward_transfer
from cl_graft.strategies.stream_scores import StreamScores


class Digits(TensorDataset):
    """A dataset with the `targets` that Avalanche asks for."""

    def __init__(self, x, y):
        super().__init__(x, y)
        self.targets = y.tolist()


def digits():
    """Avalanche's class-incremental benchmark: digits 0 to 5, two a task."""
    bunch = load_digits(n_class=6)
    x = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(bunch.target)
    cut = 720
    return nc_benchmark(
        as_classification_dataset(Digits(x[:cut], y[:cut])),
        as_classification_dataset(Digits(x[cut:], y[cut:])),
        n_experiences=3,
        task_labels=True,
        fixed_class_order=list(range(6)),
        class_ids_from_zero_in_each_exp=True,
    )


class SmallVit(MultiTaskModule):
    """The vision transformer of transformers, and Avalanche's head a task."""

    def __init__(self):
        super().__init__()
        self.vit = ViTModel(
            ViTConfig(
                image_size=8,
                patch_size=2,
                num_channels=1,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                initializer_range=0.2,  # a random base has to carry the picture to the head
            ),
            add_pooling_layer=False,
        )
        self.classifier = MultiHeadClassifier(32, initial_out_features=2)

    def forward(self, x, task_labels):
        features = self.vit(pixel_values=x).last_hidden_state.mean(1)
        return self.classifier(features, task_labels)


@pytest.mark.slow
def test_one_plugin_line_makes_an_image_experiment_forget_nothing():
    torch.manual_seed(0)
    model, scores = SmallVit(), StreamScores()
    dense = FineTuning(steps=40, batch_size=16, lr=0.05, evaluations=1)
    plugin = GraftingPlugin(quick(density=0.1, mask_batch=32, fine_tuning=dense))
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        train_mb_size=16,
        train_epochs=2,
        eval_mb_size=64,
        plugins=[plugin],
        evaluator=quiet_evaluator(scores),
    )
    benchmark = digits()
    for experience in benchmark.train_stream:
        strategy.train(experience)
        strategy.eval(benchmark.test_stream)
    assert len(plugin.bank) == 3
    assert forgets_no_bit(scores)
    assert backward_transfer(scores.R(3)) == 0.0
    names = plugin.bank.layout.names  # of blocks alone
    assert all("embeddings" not in name and "classifier" not in name for name in names)
    assert "vit.layernorm.weight" not in names

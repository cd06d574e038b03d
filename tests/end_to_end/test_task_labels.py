"""Streams without task labels: what is said of them, and the ways to make labels."""

import pytest
import torch
from avalanche.benchmarks import nc_benchmark, task_incremental_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.models import SimpleMLP
from avalanche.training.supervised import JointTraining
from head_models import accuracy
from slow_cases import slow_but
from tiny_streams import forgets_no_bit, learner, multi_head, quick, quiet_evaluator, sgd
from torch import nn
from torch.utils.data import TensorDataset

from cl_graft import FineTuning, GraftingPlugin


class Pictures(TensorDataset):
    """Six classes of noisy prototypes; the same prototypes with every seed."""

    def __init__(self, seed):
        prototypes = torch.randn(6, 12, generator=torch.Generator().manual_seed(7))
        noise = torch.randn(96, 12, generator=torch.Generator().manual_seed(seed))
        targets = torch.arange(96) % 6
        super().__init__(prototypes[targets] + 0.3 * noise, targets)
        self.targets = targets.tolist()


def split_pictures(**chosen):
    """Make what SplitMNIST is: three experiences of two classes each."""
    train, test = (as_classification_dataset(Pictures(seed)) for seed in (0, 1))
    return nc_benchmark(train, test, n_experiences=3, seed=0, **({"task_labels": False} | chosen))


def plain(classes=6):
    torch.manual_seed(0)
    return SimpleMLP(num_classes=classes, input_size=12, hidden_size=32, drop_rate=0.0)


def made(model, benchmark, **chosen):
    settings = quick(density=0.05, fine_tuning=FineTuning(steps=20, lr=0.1, evaluations=1))
    return learner(model, benchmark, settings=settings, train_epochs=4, **chosen)


def relabelled():
    return task_incremental_benchmark(split_pictures(), reset_task_labels=True)


WAYS = {
    "task_labels=True": (lambda: split_pictures(task_labels=True), "stream"),
    "reset_task_labels=True": (relabelled, "stream"),
    'task_labels="experience"': (split_pictures, "experience"),
}


@pytest.mark.parametrize("way", slow_but(('task_labels="experience"',), WAYS))
def test_every_way_that_the_warning_names_forgets_nothing(way):
    unlabeled = made(plain(), split_pictures())
    with pytest.warns(UserWarning, match="nothing is protected") as said:
        unlabeled.strategy.train(unlabeled.train_stream[0])
    assert way in str(said[0].message)
    benchmark, labels = WAYS[way]
    run = made(plain(), benchmark(), grafting={"task_labels": labels}).learn()
    assert [entry.label for entry in run.plugin.bank.entries] == [0, 1, 2]
    assert forgets_no_bit(run.scores)
    assert min(accuracy(run, j) for j in range(3)) > 0.9


def test_rows_for_choosing_are_found_by_the_index_of_their_experience():
    benchmark = split_pictures()
    chosen_on = list(benchmark.test_stream)
    run = made(plain(), benchmark, grafting={"task_labels": "experience", "dev": chosen_on})
    run.strategy.train(run.train_stream)
    for entry, experience in zip(run.plugin.bank.entries, chosen_on, strict=True):
        rows = entry.recorded_batch.inputs
        shown = torch.stack([experience.dataset[n][0] for n in range(len(experience.dataset))])
        assert all((shown == row).all(1).any() for row in rows)


def test_a_reopened_bank_goes_on_by_the_index():
    run = made(plain(), split_pictures(), grafting={"task_labels": "experience"})
    run.strategy.train(list(run.train_stream)[:2])
    expected = run.hashes()[:2]
    bank = run.plugin.bank
    again = made(plain(), split_pictures(), grafting={"task_labels": "experience", "bank": bank})
    assert again.hashes()[:2] == expected
    again.strategy.train(again.train_stream[2])
    assert again.hashes()[:2] == expected


def test_a_model_that_answers_by_other_labels_is_refused():
    model = multi_head()
    run = made(model, split_pictures(), grafting={"task_labels": "experience"})
    run.strategy.train(run.train_stream[0])
    with pytest.raises(ValueError, match="models without task heads"):
        run.strategy.train(run.train_stream[1])


def test_a_strategy_that_trains_on_rows_of_tasks_without_an_entry_is_refused():
    model = multi_head()
    plugin = GraftingPlugin(quick())
    strategy = JointTraining(
        model=model,
        optimizer=sgd(model),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=12,
        plugins=[plugin],
        evaluator=quiet_evaluator(),
    )
    benchmark = split_pictures(task_labels=True, class_ids_from_zero_in_each_exp=True)
    with pytest.raises(ValueError, match=r"JointTraining trains task 0 on rows of tasks 1, 2, too"):
        strategy.train(benchmark.train_stream)
    assert not plugin.bank.entries


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"settings": {"density": 0.1}}, "settings must be GraftingSettings, .* got a dict"),
        ({"bank": "folder"}, "bank must be GraftBank, such as load_bank.* got 'folder'"),
        ({"identity": "0123"}, "identity must be BaseIdentity"),
        ({"by_label": {"0": quick()}}, "by_label holds '0': GraftingSettings; expected"),
        ({"by_label": {0: {}}}, "by_label holds 0: dict"),
        ({"task_labels": "experiences"}, "task_labels must be one of 'stream', 'experience', got"),
        ({"dev": "valid"}, "dev must hold experiences, .* got a str of str"),
        ({"dev": 5}, "dev must hold experiences, .* got a int"),
    ],
)
def test_an_argument_that_would_fail_or_be_passed_over_later_is_refused_at_once(given, said):
    with pytest.raises((TypeError, ValueError), match=said):
        GraftingPlugin(**given)


def test_rows_for_choosing_that_are_no_experiences_are_refused():
    benchmark = split_pictures()
    for dev in (benchmark.test_stream[0], benchmark.test_stream[0].dataset, benchmark):
        with pytest.raises(TypeError, match="dev must hold experiences"):
            GraftingPlugin(dev=dev)

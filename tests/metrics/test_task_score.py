"""Task scores agree with scikit-learn, an independent reference, and are defined at every edge."""

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from own_registries import install_package
from scipy import stats
from slow_cases import slow_but

from cl_graft.data import Row, TextTask
from cl_graft.errors import InputError
from cl_graft.metrics import METRICS, agreement, register_metric, score


def f1(labels, predicted, classes):
    if classes == 2:
        return sklearn.metrics.f1_score(labels, predicted, zero_division=0)
    present = sorted(set(labels) | set(predicted))
    return sklearn.metrics.f1_score(
        labels, predicted, labels=present, average="macro", zero_division=0
    )


def matthews(labels, predicted, _):
    if set(labels) == set(predicted) and len(set(labels)) == 1:
        return 0.0  # scikit-learn's answer too, but given with a warning
    return sklearn.metrics.matthews_corrcoef(labels, predicted)


REFERENCES = {
    "accuracy": lambda labels, predicted, _: sklearn.metrics.accuracy_score(labels, predicted),
    "f1": f1,
    "matthews": matthews,
}


def random_logits(seed, n, classes):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    noise = torch.randn(n, classes, generator=generator)
    return torch.nn.functional.one_hot(labels, classes) + noise, labels


samples = st.builds(random_logits, st.integers(0, 2**32), st.integers(1, 80), st.integers(2, 6))


@pytest.mark.parametrize("metric", REFERENCES)
@given(sample=samples)
def test_class_metrics_agree_with_scikit_learn(metric, sample):
    logits, labels = sample
    predicted = logits.argmax(dim=1)
    expected = REFERENCES[metric](labels.tolist(), predicted.tolist(), logits.shape[1])
    assert score(logits, labels, metric) == pytest.approx(expected, abs=1e-6)


@given(sample=samples)
def test_the_f1_of_class_0_agrees_with_scikit_learn_and_is_of_two_classes(sample):
    logits, labels = sample
    if logits.shape[1] > 2:
        with pytest.raises(ValueError, match="is of two classes"):
            score(logits, labels, "f1_of_class_0")
        return
    predicted = logits.argmax(dim=1)
    expected = sklearn.metrics.f1_score(labels, predicted, pos_label=0, zero_division=0)
    assert score(logits, labels, "f1_of_class_0") == pytest.approx(expected, abs=1e-6)
    turned = score(logits.flip(1), 1 - labels, "f1")
    assert score(logits, labels, "f1_of_class_0") == turned or 1 in logits.diff().eq(0)


@given(st.integers(0, 2**32), st.integers(2, 80))
def test_pearson_agrees_with_numpy(seed, n):
    generator = torch.Generator().manual_seed(seed)
    labels = 5 * torch.rand(n, generator=generator)
    logits = labels[:, None] + torch.randn(n, 1, generator=generator)
    expected = np.corrcoef(logits[:, 0].double().numpy(), labels.double().numpy())[0, 1]
    assert score(logits, labels, "pearson") == pytest.approx(expected, abs=1e-6)


@given(st.integers(0, 2**32), st.integers(2, 80), st.integers(2, 20))
def test_spearman_agrees_with_scipy_also_where_values_are_equal(seed, n, values):
    generator = torch.Generator().manual_seed(seed)
    labels, logits = torch.randint(values, (2, n), generator=generator).float()
    assume(labels.unique().numel() > 1 and logits.unique().numel() > 1)
    expected = stats.spearmanr(logits.numpy(), labels.numpy()).statistic
    assert score(logits[:, None], labels, "spearman") == pytest.approx(expected, abs=1e-6)


def test_one_constant_side_is_no_correlation():
    constant, labels = torch.ones(4, 1), torch.tensor([0.0, 1.0, 2.0, 3.0])
    for metric in ("pearson", "spearman"):
        assert score(constant, labels, metric) == 0.0
        assert score(labels[:, None], constant[:, 0], metric) == 0.0
    always_first = torch.tensor([[1.0, 0.0]] * 4)
    assert score(always_first, torch.tensor([0, 1, 0, 1]), "matthews") == 0.0


def test_an_unknown_metric_is_answered_with_the_nearest_known_one():
    with pytest.raises(InputError, match=r"unknown metric 'acuracy': did you mean 'accuracy'\?"):
        score(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), "acuracy")


CLASS = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("logits", "labels", "metric", "message"),
    [
        (CLASS, torch.tensor([0, 3]), "accuracy", r"\[0, 3\), got values in \[0, 3\]"),
        (CLASS, torch.tensor([-1, 0]), "f1", r"\[0, 3\), got values in \[-1, 0\]"),
        (CLASS, torch.tensor([0.0, 1.0]), "matthews", "integer labels"),
        (CLASS, torch.tensor([0]), "accuracy", r"shape \(n,\)"),
        (CLASS[:0], torch.tensor([], dtype=torch.long), "accuracy", "at least one row"),
        (CLASS[:, :1], torch.tensor([0, 0]), "accuracy", "use 'pearson'"),
        (CLASS, torch.tensor([0.0, 1.0]), "pearson", r"shape \(n, 1\)"),
        (CLASS[:, :1], torch.tensor([0.0, float("nan")]), "pearson", "labels hold NaN"),
        (torch.tensor([[float("nan"), 0.0]]), torch.tensor([0]), "accuracy", "diverge"),
    ],
)
def test_what_does_not_fit_the_metric_is_refused(logits, labels, metric, message):
    with pytest.raises(ValueError, match=message):
        score(logits, labels, metric)


def test_a_metric_from_outside_scores_tasks_that_name_it():
    @register_metric("margin")
    def margin(logits, labels, classes):
        assert classes == 3
        return logits.max(dim=1).values.mean() - logits.mean()

    assert score(torch.eye(3), torch.arange(3), "margin") == pytest.approx(2 / 3)
    rows = tuple(Row(f"text {label}", None, label) for label in (0, 1, 2))
    task = TextTask("mine", ("a", "b", "c"), rows, rows, rows, metric="margin")
    assert task.scored_by == "margin"
    with pytest.raises(InputError, match="is a regression task: metric 'margin' does not fit"):
        TextTask("mine", (), rows, rows, rows, metric="margin")


def test_a_metric_from_outside_returns_a_finite_number_and_has_a_name_of_its_own():
    register_metric("nothing")(lambda logits, labels, classes: float("nan"))
    with pytest.raises(InputError, match="the metric 'nothing' returned nan"):
        score(CLASS, torch.tensor([0, 1]), "nothing")
    with pytest.raises(ValueError, match="a metric 'accuracy' is registered already"):
        register_metric("accuracy")(lambda logits, labels, classes: 0.0)
    with pytest.raises(ValueError, match="lower-case letters"):
        register_metric("../accuracy")


@pytest.mark.usefixtures("own_registries")
def test_a_metric_of_an_installed_package_is_found_by_its_entry_point(tmp_path, monkeypatch):
    module = (
        "from cl_graft.metrics import register_metric\n"
        "register_metric('half')(lambda logits, labels, classes: 0.5)\n"
    )
    install_package(tmp_path, "half_package", module, group="cl_graft.metrics", half="half_package")
    monkeypatch.syspath_prepend(tmp_path)
    # As before the first lookup of a process.
    monkeypatch.setattr(METRICS, "_steps", [METRICS._load_entry_points])
    assert score(CLASS, torch.tensor([0, 1]), "half") == 0.5


@pytest.mark.parametrize("metric", slow_but(("accuracy", "f1"), REFERENCES))
@given(sample=samples, share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_a_prediction_of_another_task_is_never_right(metric, sample, share, seed):
    logits, labels = sample
    classes, n = logits.shape[1], len(labels)
    generator = torch.Generator().manual_seed(seed)
    elsewhere = torch.rand(n, generator=generator) < share
    others = torch.randn(n, 3, generator=generator) + torch.where(elsewhere, 100.0, -100.0)[:, None]
    predicted = logits.argmax(dim=1).masked_fill(elsewhere, classes)
    expected = {
        "accuracy": lambda: float((predicted == labels).double().mean()),
        "f1": lambda: f1_among_others(labels.tolist(), predicted.tolist(), classes),
        "matthews": lambda: matthews(labels.tolist(), predicted.tolist(), classes),
    }[metric]()
    found = score(torch.cat([logits, others], dim=1), labels, metric, classes=classes)
    assert found == pytest.approx(expected, abs=1e-6)


def f1_among_others(labels, predicted, classes):
    own = [1] if classes == 2 else sorted((set(labels) | set(predicted)) - {classes})
    return sklearn.metrics.f1_score(labels, predicted, labels=own, average="macro", zero_division=0)


def test_agreement_is_the_share_of_equal_predictions():
    first = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]])
    second = torch.tensor([[3.0, 7.0], [1.0, 2.0], [4.0, 0.0]])
    assert agreement(first, second) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="one shape"):
        agreement(first, second[:2])

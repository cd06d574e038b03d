"""Calibration follows Guo's rule; a temperature makes confidence honest and changes no answer."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_calibration_error

from cl_graft.metrics import ece, fit_temperature, reliability_bins


def two_classes(confidences, right, dtype=torch.float64):
    """Rows that predict class 0 with these confidences, and labels that make them right or not."""
    first = torch.tensor(confidences, dtype=dtype)
    labels = torch.tensor([0 if correct else 1 for correct in right])
    return torch.stack([first, 1 - first], dim=1), labels


def random_predictions(seed, n, classes, sharpness):
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)
    return logits.softmax(dim=1), labels


predictions = st.builds(
    random_predictions,
    seed=st.integers(0, 2**32),
    n=st.integers(1, 200),
    classes=st.integers(2, 7),
    sharpness=st.floats(0, 50),
)


def test_the_error_of_a_small_sample_worked_out_by_hand():
    probabilities, labels = two_classes([0.55, 0.65, 0.95, 0.95], [True, False, True, True])
    # bins of width 0.1: |1 - .55|, |0 - .65| and twice |1 - .95|, over four rows
    assert ece(probabilities, labels, bins=10) == pytest.approx((0.45 + 0.65 + 2 * 0.05) / 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("edge", range(8, 16))
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(dtype, edge):
    probabilities, labels = two_classes([edge / 15], [True], dtype)
    assert reliability_bins(probabilities, labels).counts.argmax() == edge - 1


def test_a_confidence_of_one_shares_the_last_bin_unlike_in_torchmetrics():
    probabilities, labels = two_classes([1.0, 0.95], [False, True])
    # Guo: one bin of accuracy 1/2 and confidence 0.975. torchmetrics 1.9: two bins, one holding
    # the wrong row (gap 1), one the right row (gap 0.05).
    assert ece(probabilities, labels) == pytest.approx(0.475)
    other = multiclass_calibration_error(probabilities, labels, num_classes=2, n_bins=15)
    assert float(other) == pytest.approx((1 + 0.05) / 2)


@given(predictions)
def test_it_agrees_with_torchmetrics_on_unsaturated_predictions(sample):
    probabilities, labels = sample
    flat = 0.9 * probabilities + 0.1 / probabilities.shape[1]
    place = 15 * flat.max(dim=1).values
    assume((place - place.round()).abs().min() > 1e-4)  # the rules differ on the edges of bins
    expected = multiclass_calibration_error(
        flat, labels, num_classes=flat.shape[1], n_bins=15, norm="l1"
    )
    assert ece(flat, labels) == pytest.approx(float(expected), abs=1e-5)  # it works in float32


@given(predictions, st.integers(1, 40))
def test_every_row_is_in_exactly_one_bin_that_holds_its_confidence(sample, bins):
    found = reliability_bins(*sample, bins=bins)
    assert found.counts.sum() == len(sample[0])
    filled = found.counts > 0
    assert torch.equal(filled, ~found.confidence.isnan())
    lower = torch.arange(bins, dtype=torch.float64)[filled] / bins
    assert (found.confidence[filled] > lower - 1e-9).all()
    assert (found.confidence[filled] <= lower + 1 / bins + 1e-9).all()


def test_right_with_certainty_is_perfectly_calibrated_and_wrong_with_certainty_not_at_all():
    probabilities, labels = two_classes([1.0] * 5, [True] * 5)
    assert ece(probabilities, labels) == 0.0
    assert ece(probabilities, 1 - labels) == 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_probabilities_are_taken(dtype):
    probabilities, labels = random_predictions(0, 500, 4, 2.0)
    exact = ece(probabilities, labels)
    assert ece(probabilities.to(dtype), labels) == pytest.approx(exact, abs=0.02)


ROWS = torch.tensor([[0.25, 0.75], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("probabilities", "labels", "bins", "message"),
    [
        (torch.tensor([[2.0, -1.0]]), torch.tensor([0]), 15, "without softmax"),
        (torch.tensor([[0.3, 0.3]]), torch.tensor([0]), 15, "without softmax"),
        (torch.tensor([[float("nan"), 0.5]]), torch.tensor([0]), 15, "without softmax"),
        (ROWS, torch.tensor([0, 2]), 15, r"labels must be in \[0, 2\)"),
        (ROWS, torch.tensor([-1, 0]), 15, r"labels must be in \[0, 2\)"),
        (ROWS, torch.tensor([0]), 15, r"shape \(n, K\)"),
        (ROWS[0], torch.tensor([0, 1]), 15, r"shape \(n, K\)"),
        (ROWS[:0], torch.tensor([], dtype=torch.long), 15, "at least one row"),
        (ROWS, torch.tensor([0.0, 1.0]), 15, "integer labels"),
        (ROWS, torch.tensor([0, 1]), 0, "bins must be at least 1, got 0"),
    ],
)
def test_what_is_no_set_of_predictions_is_refused(probabilities, labels, bins, message):
    with pytest.raises(ValueError, match=message):
        ece(probabilities, labels, bins=bins)


def drawn(*, rows: int, sharpness: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits whose softmax is right, made `sharpness` times too sure, and labels drawn by them."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return sharpness * logits, labels


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_the_temperature_is_found_that_labels_were_drawn_with(sharpness):
    logits, labels = drawn(rows=20_000, sharpness=sharpness)
    fitted = fit_temperature(logits, labels)
    assert fitted is not None
    assert fitted.value == pytest.approx(sharpness, rel=0.05)
    assert fitted.rows == 20_000
    assert fitted.ece_before == ece(logits.softmax(1), labels)
    assert fitted.ece_after < 0.01


def test_it_is_the_best_of_all_temperatures():
    logits, labels = drawn(rows=400, sharpness=2.0)
    fitted = fit_temperature(logits, labels)
    assert fitted is not None

    def loss(temperature: float) -> float:
        chances = (logits / temperature).log_softmax(1).gather(1, labels[:, None])
        return float(torch.tensor(temperature).log() ** 2 / 2 - chances.sum())

    others = torch.linspace(0.1, 10, 500).tolist()
    assert loss(fitted.value) <= min(map(loss, others)) + 1e-3


def test_a_few_right_answers_do_not_make_it_sure_of_everything():
    logits = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    fitted = fit_temperature(logits, torch.tensor([0, 1]))
    assert fitted is not None
    assert 0.4 < fitted.value < 1.0


def test_nothing_is_fitted_where_there_is_no_confidence():
    assert fit_temperature(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)) is None
    assert fit_temperature(torch.zeros(3, 1), torch.zeros(3)) is None
    assert fit_temperature(torch.tensor([[float("nan"), 0.0]]), torch.tensor([0])) is None

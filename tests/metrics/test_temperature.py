"""A temperature makes confidence honest, changes no answer, and stays sane on few rows."""

import pytest
import torch

from cl_graft.metrics import ece, fit_temperature


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

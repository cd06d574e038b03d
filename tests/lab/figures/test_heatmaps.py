"""Heatmaps and reliability diagrams show every number they are given, and name their units."""

import numpy as np
import pytest
import torch

from cl_graft.lab.figures import r_matrix_heatmap, reliability_panels
from cl_graft.metrics import reliability_bins

NAMES = ["qnli", "ag_news", "sst2"]
R = [[0.752, None, None], [0.752, 0.897, None], [0.752, 0.897, 0.822]]


def bins():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(400, 3, generator=generator)
    labels = torch.where(
        torch.rand(400, generator=generator) < 0.6,
        logits.argmax(dim=1),
        torch.randint(3, (400,), generator=generator),
    )
    return reliability_bins(logits.softmax(dim=1), labels)


def test_a_heatmap_writes_every_score_and_leaves_missing_cells_empty():
    (axes,) = r_matrix_heatmap(R, NAMES).axes
    assert axes.get_title().endswith("(%)")
    written = [text.get_text() for text in axes.texts]
    assert written == ["75.2", "75.2", "89.7", "75.2", "89.7", "82.2"]
    assert [label.get_text() for label in axes.get_xticklabels()] == NAMES
    assert [label.get_text() for label in axes.get_yticklabels()] == NAMES


def test_a_heatmap_reaches_down_to_negative_correlations():
    figure = r_matrix_heatmap([[-0.25]], ["cola"])
    assert figure.axes[0].images[0].get_clim() == (-25.0, 100.0)


def test_a_reliability_diagram_states_the_error_and_draws_a_bar_for_each_filled_bin():
    found = bins()
    (axes,) = reliability_panels({"qnli": found}, title="Reliability").axes
    assert axes.get_title() == f"qnli (ECE {100 * found.ece:.1f})"
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == found.accuracy[found.counts > 0].tolist()


@pytest.mark.parametrize("cells", [[], [[0.5]], [[0.5, 0.5]], [[0.5, 0.5], [0.5]]])
def test_a_matrix_that_does_not_fit_its_names_is_refused(cells):
    with pytest.raises(ValueError, match="got 2 names"):
        r_matrix_heatmap(cells, ["a", "b"])


@pytest.mark.parametrize("tasks", [24, 25, 200])
def test_the_picture_of_a_long_stream_is_no_larger_than_that_of_a_short_one(tasks):
    names = [f"task{number}" for number in range(tasks)]
    figure = r_matrix_heatmap(np.eye(tasks).tolist(), names)
    assert max(figure.get_size_inches()) < 20
    named = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert named[0] == "task0"
    assert tasks / 2 < len(named) * -(-tasks // 24) < 2 * tasks
    assert bool(figure.axes[0].texts) is (tasks == 24)
    bars = [axes.get_ylabel() for axes in figure.axes[1:]]
    assert bars == ([] if tasks == 24 else ["score (%)"])  # the colours need no key beside numbers

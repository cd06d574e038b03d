"""The curves of a run have the tags of the table in the documentation, and no others."""

import re
from collections import Counter

import pytest
from docs.pages import DOCS
from interrupted import points_of

PAGE = DOCS / "guides" / "tensorboard.md"
TAGS = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

GRAFTING = {tag for tag in TAGS if re.match("[457]_", tag)}
OTHERS = {"1_stream/forward_transfer"}
"""Tags of models that answer before they learn."""


def pattern(tag: str) -> str:
    """The expression of the tags that a row of the table stands for."""
    return re.sub(r"<\w+>", r"[\\w-]+", tag)


def row_of(tag: str) -> str:
    """The one row of the table that a tag of a log belongs to."""
    (row,) = [row for row in TAGS if re.fullmatch(pattern(row), tag.removesuffix("/text_summary"))]
    return row


@pytest.fixture(scope="module")
def logs(comparison):
    """What each strategy's log holds, by strategy and tag."""
    folder = comparison.out / "tensorboard"
    return {path.name.removesuffix("-seed0"): points_of(path) for path in folder.iterdir()}


def test_the_tags_of_a_run_are_those_of_the_table(logs):
    assert len(TAGS) == len(set(TAGS))
    rows = {strategy: {row_of(tag) for tag in points} for strategy, points in logs.items()}
    shown = set(TAGS) - OTHERS
    assert rows["grafting"] == shown
    # One evaluation on dev chooses nothing, so `KeepBest` makes none.
    assert rows["naive"] == shown - GRAFTING - {"3_train/dev_score/<task>"}
    assert rows["independent"] == shown - GRAFTING - {"3_train/learning_rate/<task>"}


def test_curves_hold_what_the_results_say(logs, comparison):
    (run,) = [run for run in comparison.runs if run.strategy == "naive"]
    points = [value for _, value in logs["naive"]["2_score/scope"]]
    assert points == pytest.approx([row[0] for row in run.R])


def test_each_measure_is_written_once(logs):
    for strategy, points in logs.items():
        for tag, found in points.items():
            steps = [step for step, _ in found]
            assert max(Counter(steps).values()) == 1, (strategy, tag)


def test_training_stands_over_the_steps_of_the_task(logs, tiny_config):
    for points in logs.values():
        for task in tiny_config.stream.tasks:
            steps = [step for step, _ in points[f"3_train/loss/{task}"]]
            assert steps == list(range(1, tiny_config.fine_tuning.steps + 1))
    for phase, last in (
        ("4_dense", tiny_config.fine_tuning.steps),
        ("5_localization", tiny_config.grafting.mask_steps),
    ):
        steps = [step for step, _ in logs["grafting"][f"{phase}/loss/topic"]]
        assert steps == list(range(1, last + 1))


def test_the_dense_run_of_grafting_has_the_curve_of_independent_fine_tuning(logs):
    """The second of the two was answered by the cache."""
    assert logs["grafting"]["4_dense/loss/topic"] == logs["independent"]["3_train/loss/topic"]


def test_costs_count_what_the_cache_answered_as_tables_do(logs, comparison):
    (cell,) = [cell for cell in comparison.runs if cell.strategy == "independent"]
    found = [value for _, value in logs["independent"]["8_cost/seconds"]]
    assert found == pytest.approx([sum(cell.find_seconds(task).values()) for task in cell.tasks])
    assert sum(found) == pytest.approx(cell.total_seconds)
    phase = [value for _, value in logs["independent"]["8_cost/seconds/dense"]]
    saved = [cell.seconds_saved[task]["dense"] for task in cell.tasks]
    assert all(0 < kept <= value + 1e-6 for kept, value in zip(saved, phase, strict=True))

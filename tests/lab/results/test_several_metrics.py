"""A stream with several metrics has one measure of each, and is compared by shares of fine-tuning.

Expected numbers are worked out by hand from `mixed_results`.
"""

import pytest
from small_results import METRICS, mixed_results, small_result

from cl_graft.errors import InputError
from cl_graft.lab.results.comparison import Comparison, summarize
from cl_graft.lab.results.measures import measure, measure_along, named_measures
from cl_graft.lab.results.run_results import score_table
from cl_graft.lab.results.stored_runs import StoredRun, check_alike
from cl_graft.lab.results.strategy_statistics import normalization_text, normalize
from cl_graft.lab.results.summary_tables import brief_tables, summary_notes

NAIVE = (0.40 / 0.80 + 0.30 / 0.75 - 0.10 / 0.40 + 0.90 / 0.90) / 4
GRAFTING = (0.80 / 0.80 + 0.60 / 0.75 + 0.30 / 0.40 + 0.90 / 0.90) / 4


def of(name, **changes):
    return mixed_results((name,), seeds=(0,), **changes)[0]


def test_each_metric_has_its_own_measures_and_all_together_none():
    naive = of("naive")
    assert measure(naive, "average") is None
    assert named_measures(naive) == pytest.approx(
        {
            "average_accuracy": (0.40 + 0.90) / 2,
            "average_f1": 0.30,
            "average_matthews": -0.10,
            # The last task, sst2, cannot be forgotten: of the accuracies topic alone counts.
            "backward_transfer_accuracy": 0.40 - 0.80,
            "backward_transfer_f1": 0.30 - 0.70,
            "backward_transfer_matthews": -0.10 - 0.20,
            "forward_transfer_accuracy": None,
            "forward_transfer_f1": None,
            "forward_transfer_matthews": None,
            "forgetting_accuracy": 0.80 - 0.40,
            "forgetting_f1": 0.70 - 0.30,
            "forgetting_matthews": 0.20 + 0.10,
        }
    )


def test_one_metric_is_named_and_its_measures_are_those_that_are_stored():
    f1 = small_result(metrics={"a": "f1", "b": "f1_of_class_0"})
    assert measure(f1, "average") == 0.75
    assert list(named_measures(f1)) == [
        "average_f1",
        "backward_transfer",
        "forward_transfer",
        "forgetting",
    ]
    assert brief_tables(summarize([f1], config={}))[0].head[1] == "average f1"
    assert repr(f1).endswith("average f1 75.0)")
    assert summary_notes(summarize([f1], config={})) == []


def test_a_table_shows_bytes_and_seconds_and_no_measure_that_nobody_has():
    runs = [small_result(), small_result(seed=1, bytes={"a": 2000})]
    (table,) = brief_tables(summarize(runs, config={}))
    assert table.head == (
        "strategy",
        "average accuracy",
        "backward transfer",
        "forgetting",
        "bytes a task",
        "seconds",
    )
    # With the 4 seconds of the dense run that the cache answered.
    assert table.texts == [
        ["naive", "75.0 ± 0.0", "-20.0 ± 0.0", "20.0 ± 0.0", "1,005 ± 1,407", "7.5 ± 0.0"]
    ]


def test_scores_are_shares_of_independent_fine_tuning_with_the_same_seed():
    runs = mixed_results(seeds=(0,))
    scores = normalize(runs)
    grafting, naive, independent = (scores.average(run) for run in runs)
    assert grafting == pytest.approx(GRAFTING)
    assert naive == pytest.approx(NAIVE)
    assert independent == 1.0
    first_two = (0.80 / 0.80 + 0.70 / 0.75) / 2
    assert scores.average(runs[1], learned=2) == pytest.approx(first_two)
    assert scores.average(of("naive", seed=1)) is None
    assert scores.average(of("naive", data_fingerprints={"topic": "other"})) is None


def test_a_task_whose_reference_is_near_zero_or_below_is_left_out_and_named():
    runs = mixed_results(seeds=(0, 1))
    row = runs[-1].R[-1]
    row[2] = -0.05  # independent on cola, with one of the seeds
    scores = normalize(runs)
    assert scores.normalization.left_out == {"cola": -0.05}
    assert scores.normalization.tasks == ["topic", "mrpc", "sst2"]
    shares = 0.40 / 0.80 + 0.30 / 0.75 + 0.90 / 0.90
    assert scores.average(runs[2]) == pytest.approx(shares / 3)  # naive, seed 0
    text = normalization_text(scores.normalization, METRICS)
    assert text.endswith(
        "No share is taken of less than 10.0: left out is cola (matthews), where it scored -5.0."
    )
    assert "mean over 3 tasks" in text


def test_of_swept_references_that_with_the_same_values_is_taken():
    runs = [of("grafting", strategy="grafting lr=0.1"), of("independent")]
    swept = of("independent", strategy="independent lr=0.1", R=[[0.8, 0.6, 0.3, 0.9]] * 4)
    assert normalize(runs).average(runs[0]) == pytest.approx(GRAFTING)
    assert normalize([*runs, swept]).average(runs[0]) == 1.0


def test_the_terminal_and_a_notebook_show_each_metric():
    runs = mixed_results(seeds=(0,))
    summary = summarize(runs, config={})
    scores, transfers = brief_tables(summary)
    assert scores.texts[1][:5] == ["naive", f"{100 * NAIVE:.1f}", "65.0", "30.0", "-10.0"]
    assert transfers.texts[3][:2] == ["naive", "accuracy (2 tasks)"]
    shown = Comparison("out", tuple(runs), (), summary)
    assert "The normalized average is the mean over 4 tasks" in shown._repr_html_()
    assert score_table(runs[0]).head[2] == "mrpc (f1)"


def test_pandas_and_the_figure_hold_no_mean_over_metrics():
    runs = mixed_results(seeds=(0,))
    comparison = Comparison("out", tuple(runs), (), None)
    table = comparison.to_pandas().set_index("strategy")
    assert table.loc["naive", "average_f1"] == 0.30
    assert table.loc["naive", "normalized_average"] == pytest.approx(NAIVE)
    assert comparison.plot().axes[0].get_ylabel().startswith("normalized average (%)")
    alone = Comparison("out", tuple(runs[:1]), (), None)
    with pytest.raises(ValueError, match="there is no run of independent fine-tuning"):
        alone.plot()


def test_curves_are_over_the_tasks_of_one_metric():
    runs = mixed_results(("naive",), seeds=(0,))
    assert measure_along(runs, "average", "f1") == [[None, 0.70, 0.70, 0.30]]
    assert measure_along(runs, "average") == [[None] * 4]


def test_runs_that_score_a_task_by_other_metrics_are_not_put_side_by_side(tmp_path):
    runs = [small_result(), small_result(metrics={"a": "accuracy", "b": "f1"})]
    with pytest.raises(InputError, match=r"scores b by accuracy, .* by f1"):
        check_alike([StoredRun(tmp_path, run) for run in runs])

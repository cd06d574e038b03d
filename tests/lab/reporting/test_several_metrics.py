"""What is written of a stream with several metrics has a column or a row for each of them."""

import csv
import io
import json

import pytest
from small_results import METRICS, mixed_results, small_result

from cl_graft.lab.reporting.report_data import read_report_data
from cl_graft.lab.reporting.sections import make_sections
from cl_graft.lab.reporting.summary_files import comparison_csv, write_summary
from cl_graft.lab.results.comparison import summarize
from cl_graft.lab.results.run_results import write_result

WITHOUT_CONFIDENCE = {
    "metrics": METRICS | {"cola": "pearson"},
    "ece": [[0.1 if j <= i and j != 2 else None for j in range(4)] for i in range(4)],
}
"""What is other where one of the tasks is a regression."""


def test_a_summary_holds_each_metric_and_shares_and_no_mean_over_metrics():
    summary = summarize(mixed_results(), config={})
    naive = summary.strategies["naive"]
    assert naive.average_accuracy.mean is naive.forgetting.mean is naive.of_independent is None
    assert naive.by_metric["accuracy"]["average"].mean == pytest.approx((0.41 + 0.91) / 2)
    assert naive.by_metric["f1"]["forgetting"].mean == pytest.approx(0.70 - 0.30)
    seeds = [
        ((40 + k) / (80 + k) + (30 + k) / (75 + k) + (k - 10) / (40 + k) + 1) / 4 for k in range(3)
    ]
    assert naive.normalized.mean == naive.overall.mean == pytest.approx(sum(seeds) / 3)
    assert {row.strategy for row in summary.differences} == {"naive", "independent"}
    assert summary.overall == "normalized average"


def test_without_independent_fine_tuning_the_summary_says_why_nothing_is_tested(tmp_path):
    summary = summarize(mixed_results(("grafting", "naive")), config={})
    assert summary.differences == []
    assert summary.strategies["naive"].normalized.n == 0
    write_summary(summary, tmp_path)
    text = (tmp_path / "summary.md").read_text()
    assert "There is no normalized average, and differences are not tested: there is no run" in text
    assert "| normalized average |" not in text


@pytest.mark.parametrize(("metric", "share"), [("matthews", None), ("accuracy", 1.0)])
def test_a_share_of_a_correlation_near_zero_is_not_shown(metric, share):
    low = {"average_accuracy": 0.04, "metrics": dict.fromkeys("ab", metric)}
    runs = [small_result(strategy=name, **low) for name in ("naive", "independent")]
    assert summarize(runs, config={}).strategies["naive"].of_independent == share


def test_tables_of_every_format_name_each_metric_and_say_what_is_averaged(tmp_path):
    summary = summarize(mixed_results(), config={})
    rows = [*csv.DictReader(io.StringIO(comparison_csv(summary)))]
    own = {row["measure"]: row["mean"] for row in rows if row["strategy"] == "naive"}
    assert float(own["average_f1"]) == pytest.approx(0.31)
    assert float(own["forgetting_matthews"]) == pytest.approx(0.30)
    assert {"average_matthews", "normalized_average", "accuracy_over_stream"} <= set(own)
    assert not {"forgetting", "backward_transfer"} & set(own)
    write_summary(summary, tmp_path)
    table = (tmp_path / "summary.tex").read_text()
    assert "normalized average & average accuracy (2 tasks) & average f1 (1 task)" in table
    assert table.startswith("% Scores: accuracy of topic, sst2; f1 of mrpc; matthews of cola.")
    text = (tmp_path / "summary.md").read_text()
    assert "| strategy | normalized average | average accuracy (2 tasks) | average f1 (1" in text
    assert "| naive | matthews (1 task) | -30.0 ± 0.0 | 30.0 ± 0.0 |" in text
    assert "corrected after Holm, on the normalized average" in text
    assert "the mean over 4 tasks of the score as a share of independent fine-tuning's" in text
    assert json.loads((tmp_path / "summary.json").read_text())["normalization"]["tasks"]


def sections(runs, out):
    for run in runs:
        folder = out / run.strategy / "seed0"
        folder.mkdir(parents=True)
        write_result(run, folder)
    return {section.name: section for section in make_sections(read_report_data([out]))}


def test_a_page_has_a_regression_beside_classes(tmp_path):
    made = sections(mixed_results(seeds=(0,), **WITHOUT_CONFIDENCE), tmp_path)
    compared = made["comparison"]
    (_, first), (_, second), *_ = compared.tables
    assert first.head[1:4] == (
        "normalized average",
        "average accuracy (2 tasks)",
        "average f1 (1 task)",
    )
    assert "never over different units" in " ".join(compared.text)
    assert second.caption.endswith("in points, over the tasks of one metric each")
    rows = [[cell.text for cell in row] for row in second.rows]
    assert ["naive", "pearson (1 task)", "-30.0", "30.0"] in rows
    pictures = {picture.name: picture.title for picture in made["stream"].pictures}
    assert "curve-average-pearson" in pictures
    assert pictures["curve-average-f1"] == ("Average f1 of the f1 tasks learned so far, after each")


def test_a_page_names_metrics_that_this_package_does_not_have(tmp_path):
    made = sections([small_result(metrics={"a": "share_right", "b": "accuracy"})], tmp_path)
    assert made["comparison"].text[1].startswith("Scores: share_right of a; accuracy of b.")


def test_regressions_alone_have_no_calibration(tmp_path):
    regressions = {"metrics": {"a": "pearson", "b": "pearson"}, "ece": [[None] * 2] * 2}
    made = sections([small_result(**regressions)], tmp_path)
    (_, table), *_ = made["comparison"].tables
    assert table.head[1] == "average pearson"
    assert "calibration" not in made

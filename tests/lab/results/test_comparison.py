"""A comparison and a run show themselves in a notebook, and give their numbers to pandas."""

from pathlib import Path

import pytest
from small_results import shifted_results, small_result

from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.verdict import write_verdict
from cl_graft.lab.results.comparison import Comparison, Failure, summarize
from cl_graft.lab.results.stored_runs import StoredRun
from cl_graft.lab.results.summary_tables import summary_notes


@pytest.fixture
def comparison() -> Comparison:
    runs = tuple(shifted_results())
    failed = (Failure("ewc", 1, "DivergedError: <b>loss</b> is nan"),)
    return Comparison(Path("out"), runs, failed, summarize(runs, failed, config={}))


def test_a_comparison_is_a_table_with_one_row_a_run(comparison):
    table = comparison.to_pandas()
    assert len(table) == 12
    means = table.groupby("strategy")["average_accuracy"].mean()
    assert means["grafting"] == pytest.approx(0.615)
    assert {"seed", "forgetting", "ece", "final a", "final b", "bytes_per_task", "seconds"} <= set(
        table.columns
    )


def test_a_comparison_shows_means_over_seeds_and_what_failed(comparison):
    html = comparison._repr_html_()
    assert "<caption>4 seeds, in points</caption>" in html
    assert "<td>grafting</td><td>61.5 ± 1.3</td>" in html
    assert "Not finished: ewc, seed 1: DivergedError: &lt;b&gt;loss" in html
    assert repr(comparison) == "Comparison('out', 12 runs, 1 failed)"


def test_names_of_others_are_text_in_a_notebook():
    evil = "<script>alert(1)</script>\u202e"
    run = small_result(strategy=evil, tasks=[evil, "b"])
    summary = summarize([small_result(strategy=evil)], config={})
    shown = [run._repr_html_(), Comparison(Path(), (run,), (), summary)._repr_html_()]
    for html in shown:
        assert "<script" not in html
        assert "\u202e" not in html
        assert "&lt;script&gt;" in html


def test_a_comparison_draws_a_line_for_each_strategy(comparison):
    axes = comparison.plot().axes[0]
    assert len(axes.lines) == 3
    turned = small_result(strategy="turned", tasks=["b", "a"])
    mixed = Comparison(Path(), (small_result(), turned), (), None).plot().axes[0]
    assert [tick.get_text() for tick in mixed.get_xticklabels()] == ["task 1", "task 2"]


def test_a_comparison_without_runs_shows_why_and_draws_nothing():
    empty = Comparison(Path("out"), (), (Failure("naive", 0, "no"),), None)
    assert empty._repr_html_() == "<p>Not finished: naive, seed 0: no</p>"
    assert empty.to_pandas().empty
    with pytest.raises(ValueError, match="no run of the comparison is finished"):
        empty.plot()


def test_a_run_is_its_matrix():
    run = small_result()
    table = run.to_pandas()
    assert table.loc["b", "a"] == 0.7
    assert table.loc["a"].isna().tolist() == [False, True]
    assert "<td>b</td><td>70.0</td><td>80.0</td>" in run._repr_html_()
    assert repr(run) == "RunResult('naive', seed 0, 2 of 2 tasks, average accuracy 75.0)"
    assert run.plot().axes[0].get_title() == "R of naive (%)"
    half = small_result(complete=False, R=[[0.9]])
    assert half.to_pandas().shape == (1, 1)


def test_it_says_which_strategies_had_far_more_training_rows_and_how_to_give_as_many():
    def rows(count):
        return {task: {"train": {"forward_backward": count, "forward": 0}} for task in "ab"}

    counts = {"grafting": 2600, "naive": 1000, "independent": 1000}
    runs = [small_result(strategy=name, passes=rows(count)) for name, count in counts.items()]
    wanted = (
        "Training rows differ: grafting had 2.6 times as many as naive. --sweep "
        "independent.times_steps=1,2.6 adds independent with as many rows as the most."
    )
    assert summary_notes(summarize(runs, config={})) == [wanted]
    swept = small_result(strategy="independent times_steps=2.6", passes=rows(2600))
    (note,) = summary_notes(summarize([*runs, swept], config={}))
    assert "--sweep" not in note
    assert summary_notes(summarize(runs[1:], config={})) == []
    assert wanted in write_verdict(
        ReportData(
            (), tuple(StoredRun(Path("r"), one) for one in runs), summarize(runs, config={}), ()
        )
    )

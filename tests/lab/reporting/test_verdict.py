"""The verdict says what the runs measured, and nothing that they did not."""

from dataclasses import replace
from pathlib import Path

from small_results import mixed_results, shifted_results, small_result

from cl_graft.lab.reporting.page import make_report
from cl_graft.lab.reporting.report_data import ReportData, read_report_data
from cl_graft.lab.reporting.sections import make_sections
from cl_graft.lab.reporting.verdict import write_verdict
from cl_graft.lab.results.comparison import summarize
from cl_graft.lab.results.run_results import write_result
from cl_graft.lab.results.stored_runs import StoredRun

GRAFTING = small_result(
    strategy="grafting", R=[[0.9, None], [0.9, 0.8]], average_accuracy=0.85, forgetting=0.0,
    bytes={"a": 123_000, "b": 125_000},
    logit_hashes={task: {"learned": "1", "end": "1"} for task in "ab"},
)  # fmt: skip
NAIVE = small_result(seconds_saved={"a": {"dense": 6.5}, "b": {}})  # 10 s against 7.5 s
INDEPENDENT = replace(GRAFTING, strategy="independent", bytes={"a": 42_600_000, "b": 42_600_000})


def verdict(*results) -> list[str]:
    runs = tuple(StoredRun(Path("run"), result) for result in results)
    return write_verdict(ReportData((), runs, summarize(results, config={}), ()))


def test_it_states_forgetting_bytes_time_and_scores_of_those_that_matter():
    assert verdict(GRAFTING, NAIVE, INDEPENDENT) == [
        "grafting forgot 0.0 points, naive 20.0.",
        "A task adds 124 kB with grafting, 42.6 MB with independent.",
        "grafting took 0.75 times as long as naive.",
        "Average accuracy at the end: grafting 85.0, naive 75.0, independent 85.0.",
        "At the end of grafting, every answer is bit for bit as on the day the task was learned.",
        "One seed: nothing can be said about how sure these numbers are.",
    ]


def test_it_names_the_rows_that_each_method_trained_on():
    rows = [{"a": {"train": {"forward_backward": n, "forward": 9}}} for n in (2400, 1920)]
    said = verdict(replace(GRAFTING, passes=rows[0]), replace(NAIVE, passes=rows[1]))
    assert "Rows that training read: 2,400 with grafting, 1,920 with naive." in said


def test_what_is_not_known_has_no_sentence():
    alone = verdict(NAIVE)
    assert alone[0] == "naive forgot 20.0 points."
    assert "the answers to 1 of 2 tasks are bit for bit" in alone[3]
    assert not any("time" in sentence for sentence in alone)
    for other in ({"machine": {"cores": 8}}, {"processes": 2}, {"seed": 1}):
        assert not any("time" in one for one in verdict(GRAFTING, replace(NAIVE, **other)))
    one = {"tasks": ["a"], "R": [[0.9]], "forgetting": None, "metrics": {"a": "accuracy"}}
    assert verdict(replace(GRAFTING, **one))[0].startswith("A task adds")


def test_units_are_not_mixed():
    said = verdict(*mixed_results())
    assert said[:3] == [
        "grafting forgot 0.0 points of accuracy, naive 40.0.",
        "grafting forgot 0.0 points of f1, naive 40.0.",
        "grafting forgot 0.0 points of matthews, naive 30.0.",
    ]
    assert any(one.startswith("Average f1 (1 task) at the end: grafting 61.0") for one in said)


def test_certainty_comes_from_the_seeds_and_the_best_of_variants_is_said_to_be():
    assert verdict(*shifted_results())[-1].startswith(
        "± is the standard deviation over 4 seeds. grafting and naive differ in average accuracy"
    )
    swept = verdict(
        replace(GRAFTING, strategy="grafting lr=1"), replace(GRAFTING, strategy="grafting lr=2")
    )
    assert swept[0] == "grafting lr=1 forgot 0.0 points."
    assert swept[-1].startswith("Of several variants of a method, the one with the highest score")


def test_the_page_begins_with_it_and_leaves_out_what_says_nothing(tmp_path):
    one = {"tasks": ["a"], "R": [[0.9]], "ece": [[0.1]], "metrics": {"a": "accuracy"}}
    write_result(replace(GRAFTING, **one, forgetting=None), tmp_path)
    first, *others = make_sections(read_report_data([tmp_path]))
    assert first.name == "verdict"
    assert {"matrices", "stream"}.isdisjoint(section.name for section in others)
    made = make_report([tmp_path], out=tmp_path / "report")
    page = made.page.read_text()
    assert 0 < page.index(made.verdict[0]) < page.index('id="comparison"')

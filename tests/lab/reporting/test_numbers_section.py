"""Numbers of regression tasks: what a run keeps of them, and what a report shows."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from answer_tasks import make_numbers, write_task
from scipy.stats import pearsonr, spearmanr
from tiny_runs import QUICK, tiny_run

from cl_graft.kinds import KINDS
from cl_graft.lab.commands.report import _read_rows, report_command
from cl_graft.lab.experiments.run_writers import collect_numbers
from cl_graft.lab.reporting.report_data import read_report_data
from cl_graft.lab.reporting.task_sections import draw_numbers, largest_errors, number_table
from cl_graft.lab.results.stored_runs import find_runs
from cl_graft.lab.results.task_files import (
    MOST_NUMBERS,
    NUMBERS,
    AnsweredNumber,
    NumberScores,
    TaskNumbers,
)
from cl_graft.metrics.figure_style import svg


@pytest.fixture(scope="module")
def run(tiny_bert, tmp_path_factory):
    """A run on a regression and a classification."""
    folder = tmp_path_factory.mktemp("numbers")
    splits = {"train": make_numbers(40, seed=1), "test": make_numbers(16, seed=1000)}
    write_task(folder / "cheer", splits, label_names=[])
    settings = {**QUICK, "data": str(folder), "lr": 0.01}
    made = tiny_run(folder / "run", tiny_bert, ["cheer", "sentiment"], **settings)
    return find_runs([made])[0]


def test_a_run_keeps_the_numbers_of_its_rows_and_their_correlations(run):
    found, rows = NUMBERS.read(run.folder), _read_rows(run)
    assert list(found) == ["cheer"]
    own = found["cheer"]
    assert own.rows == len(rows["cheer"]) == len(own.shown)
    right, answers = zip(*((one.right, one.answer) for one in own.shown), strict=True)
    assert list(right) == [rows["cheer"][one.row].label for one in own.shown]
    assert own.end.pearson == pytest.approx(run.result.R[-1][0])
    assert own.end.pearson == pytest.approx(pearsonr(right, answers)[0])
    assert own.end.spearman == pytest.approx(spearmanr(right, answers)[0])
    assert own.end.error == pytest.approx(
        sum(abs(a - b) for a, b in zip(right, answers, strict=True)) / len(right)
    )
    assert own.learned is not None
    assert own.learned.pearson == pytest.approx(run.result.R[0][0])
    assert not [
        row.text for row in rows["cheer"] if row.text in (run.folder / NUMBERS.name).read_text()
    ]


def collected(count: int) -> TaskNumbers:
    """Return what is kept of a task of which row 7 has the largest error."""
    right = torch.arange(count, dtype=torch.float32)
    answers = right + torch.where(right == 7, 50.0, 0.1)
    scores: Any = SimpleNamespace(order=[0], predictions=lambda number: (answers[:, None], right))
    task = SimpleNamespace(name="a", own_kind=KINDS["regression"], label_names=())
    tasks: Any = [SimpleNamespace(task=task, rows={"test": torch.arange(count)})]
    return collect_numbers(tasks, scores, {})["a"]


def test_of_many_rows_some_at_equal_distances_are_kept_and_the_largest_errors():
    assert len(collected(200).shown) == 200
    many = collected(1379)
    assert many.rows == 1379
    assert 100 < len(many.shown) <= MOST_NUMBERS
    assert many.largest_errors(1) == [AnsweredNumber(7, 7.0, 57.0)]
    assert [one.row for one in many.shown] == sorted(one.row for one in many.shown)


def with_numbers(folder, found):
    data = read_report_data([folder])
    return replace(data, numbers={"grafting": {"a": found}})


@pytest.mark.parametrize("values", [(1.0, 1.0), (0.0, 0.0), (-3.4e38, 3.4e38), (1e-40, 2e-40)])
def test_axes_of_a_panel_are_alike_and_hold_every_number(run, values):
    found = TaskNumbers(1, None, NumberScores(0.0, 0.0, 1.0), (AnsweredNumber(0, *values),))
    (picture,) = draw_numbers(with_numbers(run.folder, found))
    axes = picture.figure.axes[0]
    assert axes.get_xlim() == axes.get_ylim()
    low, high = axes.get_xlim()
    assert low < min(values) <= max(values) < high
    assert svg(picture.figure)


def test_scores_are_beside_the_figure_and_the_largest_error_is_the_first_row(run):
    shown = (AnsweredNumber(0, 1.0, 2.0), AnsweredNumber(3, 1.0, -4.5), AnsweredNumber(5, 2.0, 2.0))
    found = TaskNumbers(6, None, NumberScores(0.25, -0.5, 2.2), shown)
    data = with_numbers(run.folder, found)
    (row,) = number_table(data).rows
    assert [cell.text for cell in row[1:]] == ["a", "–", "–", "–", "25.0", "-50.0", "2.2", "6"]
    (picture,) = draw_numbers(data)
    assert "Pearson 25.0, Spearman -50.0" in picture.figure.axes[0].get_title()
    table = largest_errors("grafting", "a", found, None)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["3", "1", "-4.5", "-5.5"], ["0", "1", "2", "1"], ["5", "2", "2", "0"],
    ]  # fmt: skip


def test_texts_are_on_the_page_only_where_they_were_asked_for(run, tmp_path, request):
    texts = [row.text for row in _read_rows(run)["cheer"]]
    report_command([run.folder], out=tmp_path / "without")
    page = (tmp_path / "without" / "report.html").read_text()
    assert "largest errors at the end" in page
    assert not [text for text in texts if text in page]
    request.getfixturevalue("blank_figures")
    report_command([run.folder], out=tmp_path / "with", with_text=True)
    table = (tmp_path / "with" / "tables" / "largest-errors-1-1.csv").read_text()
    assert len([text for text in set(texts) if text in table]) > 3

"""Sections on each task: how it was learned, errors with texts only if asked, and numbers."""

import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from answer_tasks import make_numbers, write_task
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import precision_recall_fscore_support
from tiny_runs import QUICK, tiny_run

from cl_graft import InputError
from cl_graft.kinds import KINDS
from cl_graft.lab.commands.report import _read_rows, report_command
from cl_graft.lab.experiments.run_measurements import collect_numbers
from cl_graft.lab.figures import svg
from cl_graft.lab.reporting.report_data import read_report_data
from cl_graft.lab.reporting.task_sections import (
    draw_numbers,
    errors,
    largest_errors,
    learning,
    number_table,
)
from cl_graft.lab.results.stored_runs import find_runs
from cl_graft.lab.results.task_files import (
    CURVES,
    ERRORS,
    MOST_NUMBERS,
    NUMBERS,
    AnsweredNumber,
    NumberScores,
    PhaseCurve,
    TaskErrors,
    TaskNumbers,
    confused_pairs,
    count_wrong,
    score_classes,
)


@pytest.fixture
def run(compared):
    """A run of naive fine-tuning, which forgets."""
    return find_runs([compared / "naive" / "seed0"])[0]


def test_a_run_counts_its_errors_when_a_task_is_learned_and_at_the_end(run):
    found, result = ERRORS.read(run.folder), run.result
    assert list(found) == result.tasks
    rows = _read_rows(run)
    for place, (task, own) in enumerate(found.items()):
        count = len(rows[task])
        assert own.learned is not None
        for counts, row in ((own.learned, result.R[place]), (own.end, result.R[-1])):
            assert sum(one for *_, one in counts) == count
            assert 1 - count_wrong(counts) / count == pytest.approx(row[place])
        assert own.wrong
        assert [one.confidence for one in own.wrong] == sorted(
            (one.confidence for one in own.wrong), reverse=True
        )
        for one in own.wrong:
            assert rows[task][one.row].label == one.right != one.answer


def test_a_run_keeps_no_text_of_the_rows_that_it_counts(run):
    kept = (run.folder / ERRORS.name).read_text()
    assert not [row.text for rows in _read_rows(run).values() for row in rows if row.text in kept]


def test_scores_of_classes_are_those_of_scikit_learn():
    counts = ((0, 0, 3), (0, 1, 1), (1, 0, 2), (1, 1, 4), (1, 3, 1), (2, 1, 2))
    right = [pair[0] for pair in counts for _ in range(pair[2])]
    answers = [pair[1] for pair in counts for _ in range(pair[2])]
    expected = precision_recall_fscore_support(right, answers, labels=[0, 1, 2], zero_division=0)
    found = score_classes(counts, classes=3)
    for name, values in zip(("precision", "recall", "f1", "rows"), expected, strict=True):
        assert [getattr(one, name) or 0 for one in found] == pytest.approx(list(values))
    assert found[2].precision is None  # never answered


def test_the_most_confused_pairs_come_first_also_those_that_only_were_confused():
    learned, end = ((0, 1, 5), (1, 1, 9)), ((0, 0, 5), (1, 0, 2), (1, 2, 7))
    found = TaskErrors(("a", "b"), learned, end)
    assert confused_pairs(found) == [(1, 2, 0, 7), (1, 0, 0, 2), (0, 1, 5, 0)]
    assert found.name(2) == "a label of another task"
    assert confused_pairs(TaskErrors(("a", "b"), None, end))[0] == (1, 2, None, 7)


def test_texts_are_on_the_page_only_where_they_were_asked_for(run, tmp_path, capsys, request):
    folder = shutil.copytree(run.folder, tmp_path / "naive" / "seed0")
    rows = _read_rows(run)
    wrong = {
        rows[task][one.row].text for task, own in ERRORS.read(folder).items() for one in own.wrong
    }
    report_command([folder], out=tmp_path / "without")
    page = (tmp_path / "without" / "report.html").read_text()
    assert "Errors of each task" in page
    assert "--with-text shows some of the rows" in page
    assert not [text for text in wrong if text in page]
    request.getfixturevalue("blank_figures")
    report_command([folder], out=tmp_path / "with", with_text=True)
    table = (tmp_path / "with" / "tables" / "wrong-1-1.csv").read_text()
    assert [text for text in wrong if text in table]


def test_rows_that_changed_since_are_not_shown_and_it_says_why(compared):
    data = read_report_data([compared / "naive" / "seed0"])

    def gone(run):
        raise InputError("the data of topic changed")

    section = errors(data, read_rows=gone)
    assert section.lines == ("The wrong rows are not shown: the data of topic changed",)
    assert [name for name, _ in section.details[0][1]] == [
        *(f"confusions-1-{number}" for number in (1, 2, 3)),
        "labels-1",
    ]


def test_a_matrix_shows_what_changed_and_many_labels_are_pairs(compared):
    data = read_report_data([compared])
    two = TaskErrors(("a", "b"), ((0, 0, 3), (1, 1, 2)), ((0, 0, 3), (1, 0, 1), (1, 2, 1)))
    labels = tuple(f"label {place}" for place in range(150))
    end = tuple((place, (place + 1) % 150, 1 + place) for place in range(150))
    many = TaskErrors(labels, None, end)
    data.errors["naive"] = {"two": two, "many": many}
    section = errors(data, read_rows=None)
    row = next(row for row in dict(section.tables)["errors"].rows if row[0].text == "naive")
    assert [cell.text for cell in row[1:6]] == ["two", "0", "2", "5 rows", "b as a: 1"]
    own = dict(dict(section.details)["naive"])
    (_, matrix), (_, pairs), _ = own.items()
    assert matrix.head == ("label", "a", "b", "a label of another task")
    assert [cell.text for cell in matrix.rows[1]] == ["b", "0 → 1", "2 → 0", "0 → 1"]
    assert len(pairs.rows) == 15
    assert [cell.text for cell in pairs.rows[0]] == ["label 149", "label 0", "–", "150"]


def test_a_span_that_is_not_there_is_confused_but_has_no_score(compared):
    data = read_report_data([compared])
    found = TaskErrors(("place", "no span"), None, ((0, 1, 2), (1, 0, 4)), counted="spans")
    invented = TaskErrors(("place", "no span"), None, ((1, 0, 4),), counted="spans")
    data.errors["naive"] = {"found": found, "invented": invented}
    section = errors(data, read_rows=None)
    rows = [row for row in dict(section.tables)["errors"].rows if row[0].text == "naive"]
    assert [cell.text for cell in rows[0][3:]] == [
        "6", "6 spans", "no span as place: 4", "place: 0.0",
    ]  # fmt: skip
    assert rows[1][-1].text == "–"
    own = dict(dict(section.details)["naive"])
    assert [row[0].text for row in own[max(own)].rows] == ["place"]


@pytest.fixture(scope="module")
def numbers_run(tiny_bert, tmp_path_factory):
    """A run on a regression and a classification."""
    folder = tmp_path_factory.mktemp("numbers")
    splits = {"train": make_numbers(40, seed=1), "test": make_numbers(16, seed=1000)}
    write_task(folder / "cheer", splits, label_names=[])
    settings = {**QUICK, "data": str(folder), "lr": 0.01}
    made = tiny_run(folder / "run", tiny_bert, ["cheer", "scope"], **settings)
    return find_runs([made])[0]


def test_a_run_keeps_the_numbers_of_its_rows_and_their_correlations(numbers_run):
    found, rows = NUMBERS.read(numbers_run.folder), _read_rows(numbers_run)
    assert list(found) == ["cheer"]
    own = found["cheer"]
    assert own.rows == len(rows["cheer"]) == len(own.shown)
    right, answers = zip(*((one.right, one.answer) for one in own.shown), strict=True)
    assert list(right) == [rows["cheer"][one.row].label for one in own.shown]
    assert own.end.pearson == pytest.approx(numbers_run.result.R[-1][0])
    assert own.end.pearson == pytest.approx(pearsonr(right, answers)[0])
    assert own.end.spearman == pytest.approx(spearmanr(right, answers)[0])
    assert own.end.error == pytest.approx(
        sum(abs(a - b) for a, b in zip(right, answers, strict=True)) / len(right)
    )
    assert own.learned is not None
    assert own.learned.pearson == pytest.approx(numbers_run.result.R[0][0])
    assert not [
        row.text
        for row in rows["cheer"]
        if row.text in (numbers_run.folder / NUMBERS.name).read_text()
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


@pytest.mark.parametrize("values", [(0.0, 0.0), (-3.4e38, 3.4e38), (1e-40, 2e-40)])
def test_axes_of_a_panel_are_alike_and_hold_every_number(numbers_run, values):
    found = TaskNumbers(1, None, NumberScores(0.0, 0.0, 1.0), (AnsweredNumber(0, *values),))
    (picture,) = draw_numbers(with_numbers(numbers_run.folder, found))
    axes = picture.figure.axes[0]
    assert axes.get_xlim() == axes.get_ylim()
    low, high = axes.get_xlim()
    assert low < min(values) <= max(values) < high
    assert svg(picture.figure)


def test_scores_are_beside_the_figure_and_the_largest_error_is_the_first_row(numbers_run):
    shown = (AnsweredNumber(0, 1.0, 2.0), AnsweredNumber(3, 1.0, -4.5), AnsweredNumber(5, 2.0, 2.0))
    found = TaskNumbers(6, None, NumberScores(0.25, -0.5, 2.2), shown)
    data = with_numbers(numbers_run.folder, found)
    (row,) = number_table(data).rows
    assert [cell.text for cell in row[1:]] == ["a", "–", "–", "–", "25.0", "-50.0", "2.2", "6"]
    (picture,) = draw_numbers(data)
    assert "Pearson 25.0, Spearman -50.0" in picture.figure.axes[0].get_title()
    table = largest_errors("grafting", "a", found, None)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["3", "1", "-4.5", "-5.5"], ["0", "1", "2", "1"], ["5", "2", "2", "0"],
    ]  # fmt: skip


def test_a_run_keeps_the_loss_of_every_step_and_the_dev_scores(compared):
    grafting = CURVES.read(compared / "grafting" / "seed0")
    naive = CURVES.read(compared / "naive" / "seed0")
    assert list(grafting) == list(naive) == ["scope", "topic", "entailment"]
    for task, own in grafting.items():
        steps = [1, 2, 3, 4]
        for phase in (own.train, naive[task].train):
            assert [step for step, _ in phase.loss] == steps
            assert all(value > 0 for _, value in phase.loss)
        assert [step for step, _ in own.dense.loss] == [1]
        assert own.dense.dev == naive[task].dense.dev
        assert naive[task].dense == PhaseCurve()


def test_many_strategies_have_figures_of_fewer_tasks_and_the_page_says_so(compared):
    data = read_report_data([compared])
    many = {f"{name} {n}": own for n in range(20) for name, own in data.curves.items()}
    assert "Shown are" not in learning(data).text[0]
    section = learning(replace(data, curves=many))
    assert "Shown are the first 2 tasks" in section.text[0]
    assert len(section.pictures) == 2

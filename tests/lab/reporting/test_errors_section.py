"""Errors of each task: what a run counts, and what a report shows, with texts only if asked."""

import shutil

import pytest
from sklearn.metrics import precision_recall_fscore_support

from cl_graft import InputError
from cl_graft.lab.commands.report import _read_rows, report_command
from cl_graft.lab.reporting.report_data import read_report_data
from cl_graft.lab.reporting.task_sections import errors
from cl_graft.lab.results.stored_runs import find_runs
from cl_graft.lab.results.task_files import (
    ERRORS,
    TaskErrors,
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


def test_invented_spans_of_the_day_a_task_was_learned_stay_in_the_matrix(compared):
    data = read_report_data([compared])
    learned, end = ((0, 0, 3), (0, 1, 1), (1, 0, 9)), ((0, 0, 4),)
    data.errors["naive"] = {"names": TaskErrors(("place", "no span"), learned, end, (), "spans")}
    section = errors(data, read_rows=None)
    row = next(row for row in dict(section.tables)["errors"].rows if row[0].text == "naive")
    assert [cell.text for cell in row[1:5]] == ["names", "10 of 13", "0", "4 spans"]
    matrix = dict(section.details)["naive"][0][1]
    found = {cells[0].text: [cell.text for cell in cells[1:]] for cells in matrix.rows}
    assert found == {"place": ["3 → 4", "1 → 0"], "no span": ["9 → 0", "0"]}


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


def test_columns_of_words_stand_at_the_left_and_numbers_at_the_right(report):
    page = (report / "report.html").read_text()
    table = page[page.index("Wrong rows, spans and labels of each task</span>") :]
    row = table[table.index("<tbody>") : table.index("</tr>", table.index("<tbody>"))]
    assert '<td class="words">sentiment</td>' in row
    assert row.count("data-value") == 4
    assert row.count('class="words"') == 2

"""Small files of a run come back as they were written, and others are named."""

import json

import pytest

from cl_graft import InputError
from cl_graft.lab.results.task_files import (
    ANSWERS,
    CURVES,
    ERRORS,
    NUMBERS,
    AnsweredNumber,
    NumberScores,
    PhaseCurve,
    ShownAnswer,
    TaskAnswers,
    TaskCurves,
    TaskErrors,
    TaskNumbers,
    WrongRow,
    thin_out,
)

RECORDS = {
    ANSWERS: TaskAnswers(2, True, (ShownAnswer("né?", ("ja",), None, "ja"),)),
    CURVES: TaskCurves(PhaseCurve(((1, 0.5),), ((1, 0.25),)), PhaseCurve(((2, 0.1),))),
    ERRORS: TaskErrors(("ja", "né"), None, ((0, 1, 2),), (WrongRow(7, 0, 1, 0.5),)),
    NUMBERS: TaskNumbers(2, None, NumberScores(0.5, 0.5, 1.0), (AnsweredNumber(0, 1.0, 2.0),)),
}


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.name)
def test_a_file_comes_back_as_it_was_written_and_others_are_named(tmp_path, file):
    file.write({"é": RECORDS[file]}, tmp_path)
    path = tmp_path / file.name
    assert file.read(tmp_path) == {"é": RECORDS[file]}
    whole = json.loads(path.read_text())
    whole["é"].pop(next(iter(whole["é"]))) if file is not CURVES else whole.update({"é": 1})
    for text in ("[]", "not json", json.dumps(whole)):
        path.write_text(text)
        with pytest.raises(InputError, match=rf"{file.name}: not the {path.stem} of a run"):
            file.read(tmp_path)


def test_a_long_curve_becomes_means_over_equal_stretches():
    points = [(step, float(step)) for step in range(1, 101)]
    thin = thin_out(points)
    assert len(thin) == 25
    assert thin[0] == (4, 2.5)
    assert thin[-1] == (100, 98.5)
    assert thin_out(points[:30]) == tuple(points[:30])
    assert thin_out([]) == ()

"""The answers that a run keeps: those of the day a task was learned, and those of now."""

from types import SimpleNamespace
from typing import Any

from cl_graft.lab.experiments.run_measurements import collect_answers
from cl_graft.lab.results.task_files import ANSWERS

RIGHT = ["x", "y" * 400]


class Scores:
    """What `StreamScores` tells of two tasks whose answers are these words."""

    def __init__(self, *days: list[str]) -> None:
        self.days = days
        self.order = list(range(len(days)))

    def predictions(self, number: int) -> tuple[list[str], list[str]]:
        return self.days[-1], RIGHT

    def logit_hash(self, row: int, number: int) -> str:
        return str(self.days[row])


def compare(said: list[str], right: list[str], *, most: int) -> list[tuple[str, str, list[str]]]:
    assert most == 10
    return [(f"input {word}", answer, [word]) for word, answer in zip(right, said, strict=True)]


TASKS: Any = [
    SimpleNamespace(
        task=SimpleNamespace(name=name, test=RIGHT), scorer=SimpleNamespace(compare=compare)
    )
    for name in ("a", "b")
]


def test_answers_of_the_day_stay_beside_those_of_now(tmp_path):
    days = (["x", "y" * 400], ["z", "y" * 399 + "z"])
    scores: Any = Scores(days[0])
    ANSWERS.write(collect_answers(TASKS, scores, ANSWERS.read(tmp_path)), tmp_path)
    assert ANSWERS.read(tmp_path)["a"].same
    scores = Scores(*days)
    ANSWERS.write(collect_answers(TASKS, scores, ANSWERS.read(tmp_path)), tmp_path)
    found = ANSWERS.read(tmp_path)
    assert [(one.learned, one.now, one.is_right) for one in found["a"].shown] == [
        ("x", "z", False),
        ("y" * 400, "y" * 399 + "z", False),
    ]
    assert (found["a"].same, found["b"].same, found["a"].rows) == (False, True, 2)
    assert [one.learned for one in found["b"].shown] == ["z", "y" * 399 + "z"]
    assert [one.text for one in found["b"].shown] == ["input x", f"input {'y' * 294} …"]
    unknown = collect_answers(TASKS, scores, {})["a"].shown
    assert [one.learned for one in unknown] == [None, None]


def test_without_tasks_of_text_there_is_no_file(tmp_path):
    ANSWERS.write({}, tmp_path)
    assert not (tmp_path / ANSWERS.name).exists()

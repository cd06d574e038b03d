"""Doubled, contradicting and leaked rows are counted."""

from dataclasses import replace

from cl_graft.data.audit import audit, describe_findings, find_shared_rows
from cl_graft.kinds import Row, TextTask
from cl_graft.kinds.messages import Message
from cl_graft.kinds.text2text import AnswerRow


def task(*splits: list[tuple[str, int]], name: str = "mine") -> TextTask:
    rows = (tuple(Row(text, None, label) for text, label in split) for split in splits)
    return TextTask(name, ("no", "yes"), *rows)


def answers(*splits: tuple[AnswerRow, ...], name: str = "a") -> TextTask:
    return TextTask(name, (), *splits, "rouge_l", kind="text2text")


def test_clean_rows_count_nothing():
    clean = task([("a b", 0), ("a  b", 1), ("a b ", 0)], [(" a b", 0)], [("a b\t", 1)])
    pairs = (Row("a", "b", 0), Row("a", "c", 1), Row("a", "d", 0), Row("a", "e", 0))
    for each in (clean, TextTask("mine", ("no", "yes"), pairs[:2], pairs[2:3], pairs[3:])):
        assert describe_findings(each, audit(each)) == []
        assert set(audit(each).values()) == {0}


def test_each_kind_is_counted_once_for_each_row():
    train = [("a", 0), ("a", 0), ("a", 1), ("b", 1), ("b", 1), ("c", 0)]
    found = task(train, [("a", 0), ("x", 1)], [("b", 0), ("x", 0), ("y", 1)])
    counts = audit(found)
    assert counts == {
        "train_test_overlap": 2,
        "train_dev_overlap": 1,
        "duplicates": 2,
        "conflicts": 3,
    }
    said = "\n".join(describe_findings(found, counts))
    assert "2 of 3 test rows also stand in train or dev" in said
    assert "3 of 6 training rows have texts that also stand in train with another" in said


def chat(*said: str) -> AnswerRow:
    messages = tuple(Message(("user", "assistant")[n % 2], text) for n, text in enumerate(said))
    return AnswerRow(said[-1], None, 0, ("Fine.",), messages=messages)


def test_conversations_are_compared_as_a_whole_and_not_by_their_last_message():
    turns = [chat(f"I bought lamp {n}.", "Thanks.", "Was it good?") for n in range(8)]
    found = answers((*turns[:5],), (turns[5],), (*turns[6:],))
    assert set(audit(found).values()) == {0}
    other = answers((turns[6],), (turns[5],), (turns[4],), name="b")
    assert find_shared_rows([found, other]) == [
        ("1 of its 2 test rows also stand in train or dev of b",),
        ("1 of its 1 test rows also stand in train or dev of a",),
    ]
    again = audit(replace(found, train=(*turns[:5], turns[0]), test=(turns[0],)))
    assert (again["duplicates"], again["train_test_overlap"]) == (1, 1)


def test_test_rows_that_another_task_of_the_stream_learns_from_are_counted_by_task():
    clean = task([("a", 0), ("b", 1)], [("c", 0)], [("d", 1)], name="one")
    test = [("a", 1), ("c", 0), ("g", 1)]
    leaking = task([("d", 0), ("e", 1)], [("f", 0)], test, name="two")
    both = task([("g", 0), ("h", 1)], [("a", 0)], [("x", 1)])
    assert find_shared_rows([clean, leaking, both]) == [
        ("1 of its 1 test rows also stand in train or dev of two",),
        (
            "2 of its 3 test rows also stand in train or dev of one",
            "2 of its 3 test rows also stand in train or dev of mine",
        ),
        (),
    ]
    assert find_shared_rows([clean]) == [()]

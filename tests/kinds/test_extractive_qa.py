"""Extractive QA: reading, windows, targets, the best span, and scores of texts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from answer_tasks import make_questions, question_task, write_task

from cl_graft.data import load_task
from cl_graft.errors import InputError
from cl_graft.kinds import KINDS, Encoding, TextTask
from cl_graft.kinds.extractive_qa import QuestionRow, find_best_spans
from cl_graft.metrics import METRICS, score
from cl_graft.models.heads import ABSENT

QA = KINDS.find("extractive_qa")
LONG = " ".join(f"The {n}. river flows through town {n * 7}." for n in range(40))
ANSWER = "town 203"
PARK = "It is in the park, in the park."


def read(**values):
    return QA.read({"question": "Where?", "context": PARK, **values}, "rows.jsonl:3")


def encode(row, tokenizer, *, max_length=64, first=0):
    return QA.encode([row], Encoding(tokenizer, "encoder", None, max_length, first=first))


def long_row(question="Which town?"):
    return QuestionRow(question, LONG, 0, ((ANSWER, LONG.index(ANSWER)),))


def answer_of(encoded, passage, window=0):
    """Return what the targets of a window say of the passage."""
    first, last, _ = encoded.targets[window].tolist()
    places = encoded.places[window]
    return passage[places[first][0] : places[last][1]].strip()


@pytest.fixture(params=["wordpiece", "roberta"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


# Reading


def test_answers_are_read_as_a_list_and_as_squad_has_them():
    first, second = ({"text": "the park", "start": start} for start in (9, 22))
    ours = read(answers=[first, second])
    theirs = read(answers={"text": ["the park", "the park"], "answer_start": [9, 22]})
    mixed = read(answers=[{"text": "the park", "answer_start": 9}, second])
    assert ours == theirs == mixed
    assert ours.answers == (("the park", 9), ("the park", 22))


def test_an_answer_that_is_not_at_its_place_is_refused_with_its_place():
    for message, context, *answers in (
        ("rows.jsonl:3: .*'the park'.*character 10.*begins at 9", PARK, ("the park", 10)),
        ("the passage does not hold it", PARK, ("the sea", 9)),
        ("it begins at 9, counted in characters", "nine, at nine", ("nine", 8)),
        ("'the park' is not at character 23", PARK, ("the park", 9), ("the park", 23)),
    ):
        with pytest.raises(InputError, match=message):
            read(context=context, answers=[{"text": t, "start": start} for t, start in answers])


@pytest.mark.parametrize(
    "answers",
    [
        None, [], "the park", [{"text": "the park"}], [{"text": "", "start": 0}],
        [{"text": "the park", "start": "9"}], [{"text": "the park", "start": 9}, {"text": "It"}],
        {"text": ["the park"], "answer_start": []},
    ],
)  # fmt: skip
def test_answers_of_another_form_are_refused_with_file_and_line(answers):
    with pytest.raises(InputError, match=r"rows\.jsonl:3: answers must be a list of texts"):
        read(answers=answers)


def test_a_question_or_passage_without_text_is_refused():
    for column, value in (("question", "  "), ("context", None)):
        with pytest.raises(InputError, match=f"rows.jsonl:3: column '{column}' must hold a text"):
            read(answers=[{"text": "the park", "start": 9}], **{column: value})
    with pytest.raises(InputError, match="takes a question and a passage"):
        QA.row("Where?", None, {})


def test_a_folder_is_known_by_its_columns_and_a_bad_row_is_named_or_skipped(tmp_path):
    rows = make_questions(12)
    splits = {"train": rows[:6], "dev": rows[6:9], "test": rows[9:]}
    folder = write_task(tmp_path / "places", splits)
    task = load_task(folder)
    assert (task.kind, task.metric, task.pair) == ("extractive_qa", "answer_f1", True)
    rows[2]["answers"][0]["start"] += 1
    write_task(folder, {"train": rows[:6]})
    with pytest.raises(InputError, match=r"train.jsonl:3: the answer .* it begins at"):
        load_task(folder)
    kept = load_task(folder, on_bad_row="skip")
    assert len(kept.train) == 5
    assert kept.fingerprint != task.fingerprint


# Windows


def test_windows_cover_the_passage_and_overlap(tokenizer):
    encoded = encode(long_row(), tokenizer)
    assert len(encoded.inputs) > 5
    assert encoded.numbers.tolist() == [0] * len(encoded.inputs)
    spans = [[pair for pair in window if pair is not None] for window in encoded.places]
    covered = torch.zeros(len(LONG), dtype=torch.bool)
    for window in spans:
        for start, stop in window:
            covered[start:stop] = True
    assert all(covered[n] or LONG[n].isspace() for n in range(len(LONG)))
    assert all(after[0][0] < before[-1][0] for before, after in pairwise(spans))


def test_targets_are_the_answers_tokens_in_just_the_windows_that_hold_it_whole(tokenizer):
    row = long_row()
    start = LONG.index(ANSWER)
    stop = start + len(ANSWER)
    encoded = encode(row, tokenizer, first=7)
    holding = 0
    for number, places in enumerate(encoded.places):
        first, last, window = encoded.targets[number].tolist()
        assert window == 7 + number
        known = [pair for pair in places if pair is not None]
        whole = known[0][0] <= start and known[-1][1] >= stop
        assert ((first, last) != (0, 0)) == whole
        if whole:
            holding += 1
            assert answer_of(encoded, LONG, number) == ANSWER
    assert 0 < holding < len(encoded.inputs)


def test_inputs_hold_question_and_window_with_segments_where_the_tokenizer_has_them(tokenizer):
    encoded = encode(long_row("Which town is it?"), tokenizer)
    for inputs, places in zip(encoded.inputs, encoded.places, strict=True):
        ids, segments = inputs
        kept = int((segments != 0).sum())
        assert len(places) == kept
        passage = [column for column, pair in enumerate(places) if pair is not None]
        assert set(segments[passage].tolist()) == {2}
        assert "which town is it" in tokenizer.decode(ids[: passage[0]]).lower()
        assert segments[kept:].sum() == 0


def test_a_short_passage_is_one_window_and_a_long_question_is_cut_and_counted(tokenizer):
    short = QuestionRow("Where is it?", "In the park.", 0, (("the park", 3),))
    encoded = encode(short, tokenizer)
    assert (len(encoded.inputs), encoded.cut) == (1, 0)
    assert answer_of(encoded, "In the park.") == "the park"
    wordy = encode(long_row("Which river flows through the old town? " * 30), tokenizer)
    assert wordy.cut == 1
    assert any(target[0] for target in wordy.targets.tolist())


def test_tokens_that_leave_no_room_for_a_passage_are_refused(tokenizer):
    with pytest.raises(InputError, match="6 tokens leave no room for a passage"):
        encode(long_row(), tokenizer, max_length=6)


def test_special_tokens_that_texts_spell_out_are_plain_characters(tokenizer):
    marks = [tokenizer.sep_token, tokenizer.mask_token, tokenizer.cls_token]
    passage = f"Before {' '.join(marks)} in the park."
    row = QuestionRow(f"Where {marks[0]} is it?", passage, 0, (("the park", passage.index("the")),))
    encoded = encode(row, tokenizer)
    plain = encode(QuestionRow("Where is it?", "In the park.", 0, ()), tokenizer)
    for mark in {tokenizer.sep_token_id, tokenizer.mask_token_id, tokenizer.cls_token_id}:
        counts = [int((one.inputs[0, 0] == mark).sum()) for one in (encoded, plain)]
        assert counts[0] == counts[1]
    assert answer_of(encoded, passage) == "the park"


# Spans


def plain_best_span(starts, ends, longest):
    best, place = -float("inf"), None
    for i in range(1, len(starts)):
        for j in range(i, min(i + longest, len(starts))):
            present = starts[i] > ABSENT and starts[j] > ABSENT
            if present and starts[i] + ends[j] > best:
                best, place = starts[i] + ends[j], (i, j)
    return best, place


def test_the_best_spans_are_those_of_a_plain_loop():
    longest = 3
    outputs = torch.randn(70, 2, 12, generator=torch.Generator().manual_seed(0))
    outputs[:, :, 0] = 9  # the first token is no part of a span
    outputs[:, :, 10:] = ABSENT
    outputs[3, :, 1:] = ABSENT  # a window without passage
    sums, columns = find_best_spans(outputs, longest=longest)
    for number, (starts, ends) in enumerate(outputs.tolist()):
        best, place = plain_best_span(starts, ends, longest)
        assert sums[number].item() == pytest.approx(best)
        if place is not None:
            assert tuple(columns[number].tolist()) == place
    assert sums[3].item() == -float("inf")


# Scores


def made_scorer(task, tokenizer, max_length=64):
    """Return the scorer of a task, and its encoded test rows and training rows."""
    encoded, first = {}, 0
    for split, rows in {"train": task.train, "valid": task.dev, "test": task.test}.items():
        encoding = Encoding(tokenizer, "encoder", None, max_length, first=first)
        encoded[split] = QA.encode(rows, encoding)
        first += len(encoded[split].inputs)
    return QA.scorer(task, encoded), encoded["test"], encoded["train"]


def right_outputs(encoded):
    """Return outputs that say the targets; windows without the answer are less sure."""
    outputs = torch.zeros(len(encoded.inputs), 2, encoded.inputs.shape[-1])
    outputs.masked_fill_((encoded.inputs[:, 1] == 0)[:, None], ABSENT)
    for number, (first, last, _) in enumerate(encoded.targets.tolist()):
        if first:
            outputs[number, 0, first] = outputs[number, 1, last] = 5
    return outputs


def long_task(**settings):
    rows = tuple(
        QuestionRow("Which?", LONG, 0, ((f"town {n * 7}", LONG.index(f"town {n * 7}.")),))
        for n in (4, 21, 38)
    )
    values = {"metric": "answer_f1", "kind": "extractive_qa", "max_length": 64, **settings}
    return TextTask("towns", (), rows, rows, rows, **values)


def test_the_surest_window_of_a_passage_answers(tokenizer):
    scorer, own, _ = made_scorer(long_task(metric="exact_match"), tokenizer)
    outputs = right_outputs(own)
    assert score(outputs, own.targets, scorer) == 1.0
    missing = next(n for n, target in enumerate(own.targets.tolist()) if not target[0])
    column = next(n for n, pair in enumerate(own.places[missing]) if pair is not None)
    outputs[missing, :, column] = 6  # surer than the right window of its passage
    assert score(outputs, own.targets, scorer) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("said", "right", "exact", "f1"),
    [
        ("The Park.", ["park"], 1.0, 1.0),  # case, punctuation and articles do not count
        ("in the big park", ["the park"], 0.0, 2 * (1 / 3) * 1 / (1 / 3 + 1)),
        ("a small town", ["the mountains", "the small town by the sea"], 0.0, 2 * 1 * 0.5 / 1.5),
        ("a small town", ["the sea", "small town"], 1.0, 1.0),  # the best of several references
        ("", ["the park"], 0.0, 0.0),
    ],
)
def test_exact_match_and_f1_are_those_of_squads_script(said, right, exact, f1):
    assert METRICS.find("exact_match").compute([said], [right]) == pytest.approx(exact)
    assert METRICS.find("answer_f1").compute([said], [right]) == pytest.approx(f1)


# Answers


def test_the_answer_of_a_passage_is_text_and_characters(tokenizer):
    task = long_task()
    _, own, _ = made_scorer(task, tokenizer)
    answers = QA.answer(right_outputs(own), own, task.test, {})
    for answer, row in zip(answers, task.test, strict=True):
        (span,) = answer.spans
        assert answer.label == row.answers[0][0]
        assert LONG[span.start : span.end] == span.text == answer.label
        assert answer.probabilities == {}
        assert answer.confidence is None


def test_rows_whose_answer_is_whole_in_no_window_count_as_cut(tokenizer):
    answer = LONG[LONG.index("The 9.") : LONG.index("The 15.")]
    row = QuestionRow("Which?", LONG, 0, ((answer, LONG.index(answer)),))
    assert encode(row, tokenizer, max_length=256).cut == 0
    small = encode(row, tokenizer, max_length=24)
    assert small.targets[:, :2].sum() == 0
    assert small.cut == 1
    assert encode(long_row("Which town? " * 30), tokenizer, max_length=24).cut == 1


def test_an_answer_keeps_the_marks_on_its_last_letter(tokenizer):
    mark = "\u0301\u0327"
    passage = f"They met at the cafe{mark}"  # an uncased BERT drops marks
    row = QuestionRow("Where?", passage, 0, ((f"cafe{mark}", passage.index("cafe")),))
    encoded = encode(row, tokenizer)
    assert encoded.targets[0, 0] > 0
    (answer,) = QA.answer(right_outputs(encoded), encoded, [row], {})
    assert answer.label == f"cafe{mark}"
    assert passage[answer.spans[0].start : answer.spans[0].end] == answer.label


# Tasks


def test_a_task_without_answers_with_label_names_or_a_metric_of_others_is_refused():
    bare = (QuestionRow("Where?", "In the park.", 0, ()),)
    moved = (QuestionRow("Where?", "In the park.", 0, (("the park", 4),)),)
    for change, message in (
        ({"metric": "accuracy"}, r"metric 'accuracy'.*fitting are answer_f1, exact_match"),
        ({"label_names": ("a", "b")}, "no label names"),
        ({"train": bare}, "train row 1 lacks a passage or an answer"),
        ({"test": moved}, "test row 1: the answer 'the park' is not at character 4"),
    ):
        with pytest.raises(InputError, match=message):
            replace(question_task(), **change)


def test_answers_as_long_as_those_of_training_are_found(tokenizer):
    start = LONG.index("The 12.")
    long = QuestionRow("Which rivers?", LONG, 0, ((LONG[start : start + 130], start),))
    short = QuestionRow("Which town?", LONG, 0, ((ANSWER, LONG.index(ANSWER)),))
    values = {"metric": "exact_match", "kind": "extractive_qa"}
    task = TextTask("rivers", (), (long, short), (long,), (long,), **values)
    scorer, own, train = made_scorer(task, tokenizer, max_length=96)
    recorded = QA.metadata_of_targets(train.targets)
    assert recorded["longest_answer"] > 30
    assert score(right_outputs(own), own.targets, scorer) == 1.0
    (said,) = QA.answer(right_outputs(own), own, task.test, recorded)
    assert said.label == long.answers[0][0]
    (before,) = QA.answer(right_outputs(own), own, task.test, {})  # of an entry without it
    assert len(before.label) < len(said.label)
    few = encode(short, tokenizer)
    assert QA.metadata_of_targets(few.targets) == {}

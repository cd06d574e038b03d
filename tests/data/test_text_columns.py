"""Labels and texts become answers and inputs of text to text, or one sentence says why not."""

from collections import Counter
from pathlib import Path

import pytest
from answer_tasks import write_rows, write_task

from cl_graft.data import load_task
from cl_graft.errors import InputError


def load(path: Path, **settings):
    return load_task(path, kind="text2text", metric="text_match", warn=False, **settings)


LABELLED = [
    {"text": f"a {n}", "text_pair": f"b {n}", "label": ("yes", "no")[n % 2]} for n in range(10)
]


def test_a_task_of_labels_is_read_as_text_to_text_on_the_same_rows(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", LABELLED)
    task, plain = load(path), load_task(path, warn=False)
    assert (task.kind, task.label_names) == ("text2text", ())
    for row, labelled in zip(task.test, plain.test, strict=True):
        assert row.text == f"{labelled.text}\n{labelled.text_pair}"
        assert row.targets == (plain.label_names[labelled.label],)


def test_numbers_of_labels_are_answered_with_their_names(tmp_path):
    rows = [{"body": f"a {n}", "stars": n % 2} for n in range(10)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    task = load(path, text="body", label="stars", label_names=["bad", "good"])
    assert {row.targets for row in task.train} == {("bad",), ("good",)}
    splits = {"train": [{"text": f"a {n}", "label": n % 2} for n in range(9)]}
    folder = write_task(tmp_path / "meta", splits, label_names=["bad", "good"])
    assert {row.targets for row in load(folder).train} == {("bad",), ("good",)}


def test_inputs_are_made_of_columns_and_a_whole_prompt_is_parted(tmp_path):
    rows = [*LABELLED, {"text": "c", "label": "no", "input": "Is it so?\none: c\nAnswer:"}]
    settings = {"instruction": "Is it so?", "input": ["{input}", "one: {text} two: {text_pair}"]}
    template = "{instruction}\n{input}\nAnswer:"
    for own in (rows, LABELLED):  # columns that no row has need not be there
        task = load(write_rows(tmp_path / "rows.jsonl", own), template=template, **settings)
        assert len(task.train) + len(task.test) + len(task.dev) >= len(own)
    task = load(write_rows(tmp_path / "rows.jsonl", rows), template=template, **settings)
    inputs = {row.text for split in (task.train, task.dev, task.test) for row in split}
    assert inputs == {"one: c"} | {f"one: a {n} two: b {n}" for n in range(10)}
    assert {row.text_pair for row in task.train} == {"Is it so?"}


def test_an_instruction_goes_before_the_inputs_of_data_that_have_none(tmp_path):
    rows = [{"input": f"a {n}", "target": [f"b {n}", "c"]} for n in range(10)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    task = load_task(path, instruction="Say b.", metric="bleu", warn=False)
    assert task.kind == "text2text"
    assert {row.text_pair for row in task.train} == {"Say b."}
    assert {len(row.targets) for row in task.train} == {2}


def test_limits_draw_whole_turns_of_a_dialogue(tmp_path):
    rows = [
        {"input": f"{n} {slot}", "target": "a", "dialogue": f"d{n // 3}", "turn": n % 3}
        for n in range(40)
        for slot in range(1 + n % 4)
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    whole = load_task(path, metric="joint_goal_accuracy", warn=False)
    sizes = Counter(row.group for row in whole.test)
    small = whole.with_limits(seed=0, max_test=8)
    assert 4 < len(small.test) <= 8
    counts = Counter(row.group for row in small.test)
    assert counts == {group: sizes[group] for group in counts}
    with pytest.raises(InputError, match="max_test 1 is less than the rows that are scored togeth"):
        for seed in range(9):
            whole.with_limits(seed=seed, max_test=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input": "{txt}"}, r"rows\.jsonl: there is no column 'txt'; did you mean 'text"),
        ({"input": "no column"}, r"task 'rows': input 'no column': braces hold the name"),
        ({"input": "{text.upper}"}, "braces hold the name of a column"),
        ({"input": "{text!r}"}, "braces hold the name of a column"),
        ({"input": "{text"}, r"input '\{text': "),
        ({"label": "labl"}, r"there is no column 'labl'; did you mean 'label'"),
        ({"input": "{more}"}, r"rows\.jsonl:1: the row lacks a text of its input, '\{more\}'"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(tmp_path, settings, message):
    path = write_rows(tmp_path / "rows.jsonl", [*LABELLED, {**LABELLED[0], "more": "d"}])
    with pytest.raises(InputError, match=message):
        load(path, **settings)


def test_inputs_and_instructions_are_for_text_to_text_alone(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", LABELLED)
    with pytest.raises(InputError, match="instruction and input are for text to text, and kind is"):
        load_task(path, kind="classification", instruction="Say b.")
    write_rows(path, [{"text": f"a {n}"} for n in range(10)])
    with pytest.raises(InputError, match=r"no label column found among text; .* call it 'target'"):
        load(path)

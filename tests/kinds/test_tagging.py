"""Tagging: records are checked, words keep their places through tokenizers, answers have spans."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from answer_tasks import write_task
from kind_data import tagged_folder, tagged_records

from cl_graft.data import load_task
from cl_graft.errors import DamagedFile, InputError
from cl_graft.kinds import KINDS, Encoding, Row, Span, TextTask
from cl_graft.kinds.tagging import TaggedRow
from cl_graft.metrics.span_scores import list_tags

SPLITS = ("train", "dev", "test")
TAGGING = KINDS.find("tagging")
ROWS = (
    TaggedRow("Lily met the president", None, 0, (1, 0, 0, 3)),
    TaggedRow("unforgettable Ångström flows", None, 1, (1, 2, 0)),
)
TAGS = list_tags(["person", "place"])
SETTINGS = {"metric": "span_f1", "kind": "tagging", "intent_names": ("meet", "travel")}
TASK = TextTask("names", TAGS, ROWS, ROWS, ROWS, max_length=16, **SETTINGS)


METADATA = {"label_names": list(TAGS), "intent_names": ["meet", "travel"]}


def encode(rows, tokenizer, *, max_length=16, task=TASK):
    return TAGGING.encode(rows, Encoding(tokenizer, "encoder", None, max_length, task=task))


def test_a_folder_of_words_and_tags_is_a_tagging_task_with_tags_in_a_fixed_order(tmp_path: Path):
    task = load_task("mine", data=tagged_folder(tmp_path / "mine"))
    assert (task.kind, task.metric) == ("tagging", "span_f1")
    assert (task.num_outputs, task.intent_names) == (5, ())
    assert task.label_names == ("O", "B-person", "I-person", "B-place", "I-place")
    first = tagged_records(1)[0]
    assert task.train[0].words == first["tokens"]
    assert [task.label_names[tag] for tag in task.train[0].tags] == first["tags"]
    assert "2 span types" in repr(task)


def test_a_label_beside_tags_is_an_intent(tmp_path: Path):
    task = load_task("mine", data=tagged_folder(tmp_path / "mine", intents=True))
    assert (task.intent_names, task.num_outputs) == (("meet", "travel"), 7)
    assert "2 span types, 2 intents" in repr(task)
    other = load_task("mine", data=tmp_path / "mine", metric="intent_accuracy")
    assert other.metric == "intent_accuracy"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, r"train.jsonl:2: words and tags .* 2 and 1; each"),
        ({"tokens": ["a"], "tags": ["I-x"]}, r":2: tag 1 is 'I-x' at the first word; .*'B-x'"),
        ({"tokens": ["a"], "tags": [0]}, r":2.*'tags' must be .*got \[0\]; numbers have no names"),
        ({"tokens": ["a"], "tags": "['O']"}, r":2.*'tags' holds a list that was written as one"),
        ({"tokens": ["a", "b"], "tags": ["O", "I-x"]}, r":2.*tag 2 is 'I-x' after 'O'.*'B-x'"),
        ({"tokens": ["a", "b"], "tags": ["B-y", "I-x"]}, r":2.*tag 2 is 'I-x' after 'B-y'"),
        ({"tokens": ["a"], "tags": ["b-x"]}, r":2.*tag 1 is 'b-x', expected O"),
        ({"tokens": ["New York"], "tags": ["O"]}, r":2.*'New York' is empty or holds a blank"),
        ({"tokens": [], "tags": []}, r":2.*there are no words"),
        ({"tokens": ["a"], "tags": None}, r":2.*'tags' must be a list of texts"),
    ],
)
def test_a_record_that_is_wrong_is_refused_with_file_and_line(tmp_path: Path, record, message):
    good = {"tokens": ["a"], "tags": ["B-x"]}
    with pytest.raises(InputError, match=message):
        load_task(write_task(tmp_path, {"train": [good, record], "test": [good]}))


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_tag_or_an_intent_that_no_training_row_has_is_refused(tmp_path: Path, split: str):
    folder = tagged_folder(tmp_path, intents=True)
    first = tagged_records(1, intents=True)[0]
    for change, message in (
        ({"tags": ["B-persons", *first["tags"][1:]]}, "'B-persons'.*did you mean"),
        ({"label": "meat"}, "intent 'meat'.*did you mean 'meet'"),
    ):
        write_task(folder, {split: [first, {**first, **change}]})
        with pytest.raises(InputError, match=rf"{split}.jsonl:2.*{message}"):
            load_task(folder)


def test_a_row_without_an_intent_among_rows_with_one_is_refused(tmp_path: Path):
    folder = tagged_folder(tmp_path, intents=True)
    with_one, (without,) = tagged_records(5, intents=True), tagged_records(1)
    blank = {**without, "label": " "}
    for train, message in (
        ([*with_one, without], "train.jsonl:6: the row has no intent, others have one"),
        ([*with_one, blank], "train.jsonl:6: the intent must be a name, got ' '"),
        (tagged_records(5), ":1: the row has the intent 'meet', training rows have"),
    ):
        with pytest.raises(InputError, match=message):
            load_task(write_task(folder, {"train": train}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_names": ("B-a", "I-a", "O")}, "'O', then B- and I- of each span type"),
        ({"label_names": ("O",)}, "has no span type: .* are all 'O'"),
        ({"intent_names": ("meet", "meet")}, "different names of intents, got meet, meet"),
        ({"intent_names": ("meet",)}, "train row 2 has intent 1"),
        ({"train": (replace(ROWS[0], tags=(1, 0)),)}, "train row 1 has 4 words and 2 tags"),
        ({"dev": (replace(ROWS[0], tags=(1, 0, 0, 5)),)}, "dev row 1 has tags"),
        ({"test": (Row("a b", None, 0),)}, "test row 1 has 2 words and 0 tags"),
        ({"positive": "meet"}, "positive 'meet' is for the metric 'f1' of two labels"),
        ({"metric": "accuracy"}, "is a tagging task: metric 'accuracy' does not fit it"),
        (
            {"metric": "intent_accuracy", "intent_names": (), **dict.fromkeys(SPLITS, ROWS[:1])},
            "has no intents",
        ),
    ],
)
def test_a_task_whose_rows_and_names_do_not_fit_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(TASK, **change)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_the_tag_of_a_word_stands_at_its_first_token(family: str, request):
    tokenizer = request.getfixturevalue({"bert": "wordpiece"}.get(family, family))
    if family == "gpt2":
        with pytest.raises(InputError, match="begins with no token of its own"):
            encode(ROWS, tokenizer)
        return
    encoded = encode(ROWS, tokenizer, max_length=40)
    for row, targets, inputs, columns in zip(
        ROWS, encoded.targets, encoded.inputs, encoded.places or (), strict=True
    ):
        assert targets[0] == len(TASK.label_names) + row.label
        assert targets[1:][targets[1:] >= 0].tolist() == list(row.tags)
        assert [int(targets[column]) for column in columns] == list(row.tags)
        length = int((inputs[1] != 0).sum())
        ends = [*columns[1:], length - 1]
        for word, first, last in zip(row.words, columns, ends, strict=True):
            text = tokenizer.decode(inputs[0, first:last].tolist()).strip()
            assert text.replace(" ", "") in (word, word.lower().replace("å", "a").replace("ö", "o"))
    assert encoded.cut == 0


def test_words_that_are_cut_off_have_no_place_and_are_counted(wordpiece):
    row = TaggedRow("one two three four five six", None, 0, (0, 0, 0, 0, 1, 2))
    encoded = encode([row, ROWS[0]], wordpiece, max_length=6)
    assert encoded.cut == 1
    assert (encoded.places or ())[0] == (1, 2, 3, 4, -1, -1)
    assert encoded.targets[0].tolist() == [5, 0, 0, 0, 0, -100]


def test_a_word_of_which_the_tokenizer_leaves_nothing_has_no_place_and_is_answered_o(wordpiece):
    row = TaggedRow("Lily \u200b sings", None, 0, (1, 0, 0))
    encoded = encode([row], wordpiece)
    assert (encoded.places or ())[0][1] == -1
    logits = torch.zeros(1, 16, 7)
    logits[..., 1] = 1
    answer = TAGGING.answer(logits, encoded, [row], METADATA)[0]
    assert answer.tags == ("B-person", "O", "B-person")


def test_an_answer_names_tags_spans_with_their_characters_and_the_intent(wordpiece):
    row = TAGGING.row("  Lily  met the\tpresident ", None, {})
    assert row.text == "Lily met the president"
    encoded = encode([row], wordpiece, task=None)
    logits = torch.full((1, 16, 7), -1e4)
    logits[..., 0] = 0.0
    logits[0, 1, 1] = logits[0, 3, 4] = logits[0, 4, 4] = 2.0
    logits[0, 0, 5:] = torch.tensor([1.0, 1.0]) + torch.tensor([0.0, torch.log(torch.tensor(3.0))])
    answer = TAGGING.answer(logits, encoded, [row], METADATA)[0]
    assert answer.tags == ("B-person", "O", "I-place", "I-place")
    # An I that follows no span of its type begins one.
    assert answer.spans == (Span(0, 4, "person", "Lily"), Span(9, 22, "place", "the president"))
    assert (answer.label, answer.probabilities["travel"]) == ("travel", pytest.approx(0.75))
    assert answer.confidence == pytest.approx(0.75)


def test_a_pair_of_texts_cannot_be_tagged():
    with pytest.raises(InputError, match="takes one text, got two"):
        TAGGING.row("a", "b", {})


def test_metadata_with_another_number_of_names_than_logits_are_damaged(wordpiece):
    encoded = encode([ROWS[0]], wordpiece, task=None)
    with pytest.raises(DamagedFile, match="names 5 tags and 2 intents, and has 6 logits"):
        TAGGING.answer(torch.zeros(1, 16, 6), encoded, ROWS[:1], METADATA)

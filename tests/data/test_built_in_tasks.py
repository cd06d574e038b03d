"""What holds for every generated task, and how far words alone get on the hard ones."""

import random
from collections import Counter

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from cl_graft.data.synthetic import GENERATED, GeneratedTask, generate, sentiment
from cl_graft.data.synthetic.generated_task import draw
from cl_graft.errors import InputError
from cl_graft.kinds.rows import Row
from cl_graft.runtime.seeding import derive

ROWS = 600

# Digests of the first 50 training rows at seed 0, recorded from version 0.1.0. A grammar that
# changes its rows changes every number measured on them.
RECORDED = {
    "answer_entailment": 2541065886392819845,
    "paraphrase": 8526084563879877352,
    "question_type": 4167253226107475502,
    "sentiment": 4493241470170512212,
    "topic": 4236332347706595814,
    "urgency": 3361275045868798818,
}

every_task = pytest.mark.parametrize("name", sorted(GENERATED))


def texts(rows: tuple[Row, ...]) -> set[str]:
    return {row.text for row in rows}


def test_there_are_at_least_six_tasks_and_each_has_its_own_name() -> None:
    assert len(GENERATED) >= 6
    assert all(task.name == name for name, task in GENERATED.items())


@every_task
def test_the_same_seed_gives_the_same_rows_and_another_seed_gives_others(name: str) -> None:
    rows = generate(name, split="train", rows=ROWS, seed=3)
    assert rows == generate(name, split="train", rows=ROWS, seed=3)
    assert len(set(rows) & set(generate(name, split="train", rows=ROWS, seed=4))) < ROWS // 10


@every_task
def test_more_rows_extend_fewer(name: str) -> None:
    more = generate(name, split="dev", rows=ROWS, seed=0)
    assert generate(name, split="dev", rows=ROWS // 4 + 1, seed=0) == more[: ROWS // 4 + 1]


@every_task
def test_drawing_rows_leaves_the_global_generator_alone(name: str) -> None:
    before = random.getstate()
    generate(name, split="train", rows=10, seed=0)
    assert random.getstate() == before


@every_task
def test_classes_are_balanced_and_labels_are_indices_of_the_label_names(name: str) -> None:
    classes = len(GENERATED[name].label_names)
    counts = Counter(row.label for row in generate(name, split="train", rows=20 * classes, seed=1))
    assert counts == dict.fromkeys(range(classes), 20)


@every_task
def test_the_place_of_a_row_does_not_tell_its_label(name: str) -> None:
    classes = len(GENERATED[name].label_names)
    rows = generate(name, split="train", rows=20 * classes, seed=1)
    assert len({row.label for row in rows[::classes]}) > 1


@every_task
def test_no_two_rows_of_a_split_are_the_same(name: str) -> None:
    rows = generate(name, split="train", rows=5_000, seed=0)
    assert len({(row.text, row.text_pair) for row in rows}) == 5_000


@pytest.mark.slow
@every_task
def test_twenty_thousand_rows_of_the_smallest_split_are_all_different(name: str) -> None:
    rows = generate(name, split="dev", rows=20_000, seed=0)
    assert len({(row.text, row.text_pair) for row in rows}) == 20_000


@every_task
def test_no_first_text_is_in_two_splits_whatever_their_seeds(name: str) -> None:
    train = texts(generate(name, split="train", rows=3_000, seed=0))
    dev = texts(generate(name, split="dev", rows=ROWS, seed=1))
    test = texts(generate(name, split="test", rows=ROWS, seed=2))
    assert not train & dev
    assert not train & test
    assert not dev & test


@every_task
def test_rows_read_as_finished_sentences_of_at_most_forty_words(name: str) -> None:
    for row in generate(name, split="train", rows=ROWS, seed=5):
        for text in (row.text, row.text_pair):
            if text is None:
                continue
            assert text[0].isupper(), text
            assert text[-1] in ".?!", text
            assert not set("{}") & set(text), text
            assert "  " not in text, text
            assert len(text.split()) <= 40, text


@every_task
def test_either_every_row_has_a_second_text_or_none_has(name: str) -> None:
    rows = generate(name, split="test", rows=50, seed=0)
    assert len({row.text_pair is not None for row in rows}) == 1


def test_generated_rows_are_the_same_on_every_machine() -> None:
    first = {
        name: derive(0, *(repr(row) for row in generate(name, split="train", rows=50, seed=0)))
        for name in GENERATED
    }
    assert first == RECORDED


def test_an_unknown_task_is_answered_with_the_nearest_known_one() -> None:
    with pytest.raises(InputError, match="'sentimant': did you mean 'sentiment'"):
        generate("sentimant", split="train", rows=1, seed=0)


def test_an_unknown_split_and_a_negative_number_of_rows_are_refused() -> None:
    with pytest.raises(InputError, match="got 'validation'"):
        generate("topic", split="validation", rows=1, seed=0)
    with pytest.raises(InputError, match="got -1"):
        generate("topic", split="train", rows=-1, seed=0)


def test_a_grammar_that_has_run_dry_says_after_how_many_rows() -> None:
    dry = GeneratedTask(
        name="dry",
        label_names=("only",),
        description="It can say two things.",
        make=lambda rng, label: Row(rng.choice(("One.", "Two.")), None, label),
    )
    found = 0
    for split in ("train", "dev", "test"):
        with pytest.raises(InputError, match=r"'dry' has no further .* after [012] rows") as caught:
            draw(dry, split=split, rows=3, seed=0)
        found += int(str(caught.value).split(" after ")[1].split()[0])
    assert found == 2


def bag_of_words_accuracy(name: str) -> float:
    """Score TF-IDF of words and word pairs with logistic regression, 2,048 training rows."""
    train = generate(name, split="train", rows=2_048, seed=0)
    test = generate(name, split="test", rows=1_000, seed=0)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2))
    features = vectorizer.fit_transform(f"{row.text} {row.text_pair or ''}" for row in train)
    classifier = LogisticRegression(C=10, max_iter=2_000)
    classifier.fit(features, [row.label for row in train])
    held_out = vectorizer.transform(f"{row.text} {row.text_pair or ''}" for row in test)
    return float(classifier.score(held_out, [row.label for row in test]))


@pytest.mark.parametrize(
    ("name", "at_most"),
    [
        ("sentiment", 0.65),
        ("answer_entailment", 0.78),
        ("paraphrase", 0.78),
        ("question_type", 0.78),
    ],
)
def test_words_alone_do_not_decide_the_hard_tasks(name: str, at_most: float) -> None:
    assert bag_of_words_accuracy(name) <= at_most


@pytest.mark.parametrize("kind", sentiment.SENTIMENT_KINDS)
def test_a_sentence_of_sentiment_says_of_which_kind_it_is(kind, monkeypatch) -> None:
    every = {name: (frames, float(name == kind)) for name, (frames, _) in sentiment._KINDS.items()}
    monkeypatch.setattr(sentiment, "_KINDS", every)
    rows = generate("sentiment", split="train", rows=60, seed=1)
    assert {sentiment.find_sentiment_kind(row.text) for row in rows} == {kind}
    assert sentiment.find_sentiment_kind("The soup was what it was.") is None

"""Scores of generated texts are those of the field's libraries, and of hand-made examples."""

from decimal import Decimal

import pytest
from own_registries import registries_restored

from cl_graft.metrics.task_score import METRICS, register_metric
from cl_graft.metrics.text_scores import find_number

SAID = ["the cat sat on the mat", "a dog", ""]
RIGHT = [["the cat is on the mat", "a cat sat on a mat"], ["A  dog "], ["nothing"]]


def compute(name: str, *values) -> float:
    return METRICS.find(name).compute(*values)


@pytest.mark.parametrize("name", ["text_match", "rouge_l", "bleu", "chrf"])
def test_the_reference_itself_scores_one_and_another_text_less(name: str):
    texts = ["there is a cat on the mat", "the dogs are barking at night"]
    assert compute(name, texts, [[text] for text in texts]) == pytest.approx(1.0)
    assert compute(name, texts, [["no such thing", text] for text in texts]) == pytest.approx(1.0)
    assert 0 <= compute(name, texts[::-1], [[text] for text in texts]) < 0.5
    assert compute(name, ["", ""], [[text] for text in texts]) == 0.0


def test_a_text_matches_but_for_case_and_white_space():
    assert compute("text_match", SAID, RIGHT) == pytest.approx(1 / 3)
    assert compute("text_match", ["(a)"], [["A"]]) == 0.0
    # SQuAD's script drops articles, so that the answer A is no answer.
    assert compute("exact_match", [""], [["A"]]) == 1.0


@pytest.mark.parametrize(
    ("said", "given", "expected"),
    [
        ("我在港口", "我在港口", 1.0),
        ("我在港口", "他在港口", 0.75),  # three of four characters
        ("дом на горе", "дом на холме", 2 / 3),
        ("😀", "😀", 1.0),
        ("😀", "🙁", 0.0),
        (":-)", ":-)", 1.0),
        ("café noir", "cafés noirs", 0.8),  # as published: caf, noir beside caf, s, noir
    ],
)
def test_rouge_compares_other_scripts_by_their_own_words(said, given, expected):
    assert compute("rouge_l", [said], [[given]]) == pytest.approx(expected)


def test_rouge_takes_the_nearest_reference_and_stems_words():
    # The longest common subsequence has 5 of 6 and 6 words, and 4 of 6 and 6.
    assert compute("rouge_l", SAID[:1], RIGHT[:1]) == pytest.approx(5 / 6)
    assert compute("rouge_l", ["dogs barking"], [["dog barks"]]) == pytest.approx(1.0)


def test_bleu_and_chrf_are_those_of_the_whole_corpus():
    from sacrebleu import corpus_bleu, corpus_chrf

    references = [[texts[0] for texts in RIGHT], [RIGHT[0][1], None, None]]
    bleu, chrf = corpus_bleu(SAID, references, force=True), corpus_chrf(SAID, references)
    assert 0 < compute("bleu", SAID, RIGHT) == bleu.score / 100 < 1
    assert 0 < compute("chrf", SAID, RIGHT) == chrf.score / 100 < 1


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5 + 5 = 10\n#### 1,210", "1210"),
        ("#### 7 dollars in 3 weeks", "7"),
        ("It costs $1,200.50.", "1200.5"),
        ("2,3,4", "4"),
        ("from 10-4", "4"),
        ("minus: -4.00", "-4"),
        ("−.5", "-0.5"),
        ("4 is not said ####", None),
        ("It costs 1 000 euros", "1000"),
        ("1\u202f234\u202f567,", "1234567"),
        ("1'000.5", "1000.5"),
        ("rooms 12 and 345, 12 3456", "3456"),
        ("0.5 100 2000 300", "300"),
        ("so 1/2", "0.5"),
        ("-3 / 4 of it", "-0.75"),
        ("about −1 1/2 cups", "-1.5"),
        ("1,000/8", "125"),
        ("on 12/25/2020", "2020"),
        ("1/0", "1"),
        ("1e5", "100000"),
        ("2.5E-3 m", "0.0025"),
        ("1e5000 or 3em", "3"),
        ("9" * 5000, "9" * 5000),
        ("none...", None),
    ],
)
def test_the_number_of_an_answer(text: str, number: str | None):
    assert find_number(text) == (None if number is None else Decimal(number))


def test_numbers_match_by_value():
    said = ["so 24.0", "#### 1000", "no idea"]
    assert compute("number_match", said, [["x #### 24"], ["#### 1,000"], ["5"]]) == 2 / 3


def test_a_goal_is_reached_where_all_slots_of_a_turn_are_right():
    said, right = ["noon", "Two", "rome", "paris"], [["noon"], ["two"], ["rome"], ["Bern"]]
    assert compute("joint_goal_accuracy", said, right, [("d", 1), ("d", 1), 2, 2]) == 0.5
    assert METRICS.find("joint_goal_accuracy").of_groups


def test_a_metric_serves_one_kind_or_several():
    with registries_restored():

        @register_metric("length_match", kind=("text2text", "extractive_qa"), of_texts=True)
        def length_match(answers, right) -> float:
            return 0.0

        assert METRICS.find("length_match").kinds == ("text2text", "extractive_qa")
    assert METRICS.find("accuracy").kinds == ("classification",)
    assert METRICS.find("exact_match").kinds == ("extractive_qa", "text2text")


def test_groups_are_of_texts():
    with pytest.raises(ValueError, match="pass of_texts=True"):
        register_metric("grouped", of_groups=True)

"""Scores of generated texts beside one or several right ones.

All are in [0, 1]. `exact_match` and `answer_f1`, which ignore punctuation and articles as SQuAD's
script does, stand in `cl_graft.metrics.span_scores`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from cl_graft.metrics.task_score import register_metric

_BLANKS = " \u00a0\u2009\u202f"
_NUMBER = re.compile(
    r"(?P<divisor>(?<=[/⁄]))?"
    r"(?P<sign>(?<!\w)[-−])?"  # a sign, and no hyphen of a range
    rf"(?:(?P<whole>\d+)[{_BLANKS}](?=\d{{1,2}}[/⁄]\d))?"  # 1 1/2
    rf"(?P<number>(?:\d{{1,3}}(?P<mark>[,'’{_BLANKS}])\d{{3}}(?:(?P=mark)\d{{3}})*(?!\d)|\d+)"
    r"(?:\.\d+)?|\.\d+)"
    r"(?P<power>[eE][-+]?\d{1,3}(?!\w))?"
    # A fraction, and no date or path.
    r"(?(divisor)|(?: ?[/⁄] ?(?P<below>\d+(?:\.\d+)?)(?!\d| ?[/⁄]))?)"
)
_FINAL = "####"
_NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
"""Thai, Lao, Burmese, Khmer, kana and Han characters."""
_WORDS = re.compile(rf"[{_NO_SPACES}]|(?:(?![{_NO_SPACES}])\w)+")


@register_metric("text_match", kind="text2text", of_texts=True)
def _text_match(answers: Sequence[str], right: Sequence[Sequence[str]]) -> float:
    """Return the share of answers that are a right one, but for case and white space."""
    return _average([float(_is_right(*row)) for row in zip(answers, right, strict=True)])


@register_metric("rouge_l", kind="text2text", of_texts=True)
def _rouge_l(answers: Sequence[str], right: Sequence[Sequence[str]]) -> float:
    """Return the mean F-measure of ROUGE-L with Porter's stems, of each row's nearest reference.

    As the evaluation of Super-NaturalInstructions (https://arxiv.org/abs/2204.07705). Its tokens
    are of Latin letters without accents and of digits; a right answer of which they are less than
    half is compared by the words of its own script.
    """
    from rouge_score.rouge_scorer import RougeScorer

    published = RougeScorer(["rougeL"], use_stemmer=True)
    own_script = RougeScorer(["rougeL"], tokenizer=_OwnScript())

    def compare(said: str, given: str) -> float:
        scorer = published if _is_ascii(given) else own_script
        return float(scorer.score(given, said)["rougeL"].fmeasure)

    return _average(
        [
            max(compare(said, given) for given in texts)
            for said, texts in zip(answers, right, strict=True)
        ]
    )


def _is_ascii(text: str) -> bool:
    """Whether half of a text's letters and digits, or more, are of ASCII, and there are some."""
    known = [char.isascii() for char in text if char.isalnum()]
    return 2 * sum(known) >= len(known) > 0


class _OwnScript:
    """Words in lower case; of scripts without spaces the characters, as of texts without words."""

    def tokenize(self, text: str) -> list[str]:
        return _WORDS.findall(text.lower()) or list("".join(text.split()))


@register_metric("bleu", kind="text2text", of_texts=True)
def _bleu(answers: Sequence[str], right: Sequence[Sequence[str]]) -> float:
    """Return the BLEU of all rows together, by sacrebleu (https://arxiv.org/abs/1804.08771)."""
    from sacrebleu import corpus_bleu

    return corpus_bleu(list(answers), _by_place(right), force=True).score / 100


@register_metric("chrf", kind="text2text", of_texts=True)
def _chrf(answers: Sequence[str], right: Sequence[Sequence[str]]) -> float:
    """Return the chrF2 of all rows together, by sacrebleu (https://aclanthology.org/W15-3049)."""
    from sacrebleu import corpus_chrf

    return corpus_chrf(list(answers), _by_place(right)).score / 100


@register_metric("number_match", kind="text2text", of_texts=True)
def _number_match(answers: Sequence[str], right: Sequence[Sequence[str]]) -> float:
    """Return the share of answers whose number is that of a right one.

    As GSM8K is scored (https://arxiv.org/abs/2110.14168); an answer without a number is wrong.
    """
    numbers = [find_number(said) for said in answers]
    return _average(
        [
            float(number is not None and any(find_number(text) == number for text in texts))
            for number, texts in zip(numbers, right, strict=True)
        ]
    )


@register_metric("joint_goal_accuracy", kind="text2text", of_texts=True, of_groups=True)
def _joint_goal_accuracy(
    answers: Sequence[str], right: Sequence[Sequence[str]], groups: Sequence[Hashable]
) -> float:
    """Return the share of groups, turns of dialogues, of which every answer is right.

    As for dialogue states (https://arxiv.org/abs/1909.05855); answers are compared as `text_match`
    does.
    """
    all_right: dict[Hashable, bool] = {}
    for said, texts, group in zip(answers, right, groups, strict=True):
        all_right[group] = all_right.get(group, True) and _is_right(said, texts)
    return _average([float(right_group) for right_group in all_right.values()])


def find_number(text: str) -> Decimal | Fraction | None:
    """Return the number that a text answers: that after the last ``####``, else its last one.

    Thousands are set apart by commas, blanks or apostrophes; signs, powers of ten, fractions and
    trailing zeros are read. None where there is no number.

    Examples:
        >>> find_number("It costs $1,200.50"), find_number("about 1 1/2"), find_number("1e5 km")
        (Decimal('1200.50'), Fraction(3, 2), Decimal('1E+5'))
    """
    _, mark, final = text.rpartition(_FINAL)
    matches = list(_NUMBER.finditer(final))
    if not matches:
        return None
    match = matches[0] if mark else matches[-1]
    sign = "-" if match["sign"] else ""
    digits = match["number"].replace(match["mark"] or ",", "")
    number = Decimal(f"{sign}{digits}{match['power'] or ''}")
    below = Decimal(match["below"] or 0)
    if not below:
        return number
    return Fraction(Decimal(f"{sign}{match['whole'] or 0}")) + Fraction(number) / Fraction(below)


def _is_right(said: str, texts: Sequence[str]) -> bool:
    return any(_plain(said) == _plain(given) for given in texts)


def _plain(text: str) -> str:
    """Return a text in one case, with single blanks between its words."""
    return " ".join(text.casefold().split())


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _by_place(right: Sequence[Sequence[str]]) -> list[list[Any]]:
    """Return the first reference of each row, then the second; None where a row has fewer."""
    most = max(map(len, right))
    return [[texts[i] if i < len(texts) else None for texts in right] for i in range(most)]

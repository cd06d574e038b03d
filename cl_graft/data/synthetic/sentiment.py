"""Sentiment: what a reviewer thinks, where half the words say the opposite."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import cache

from cl_graft.data.synthetic.generated_task import GeneratedTask
from cl_graft.data.synthetic.grammar import fill, finish_sentence
from cl_graft.data.synthetic.shared_words import ANYTHING, DOMAINS, draw_judgement
from cl_graft.kinds.rows import Row

# In every frame {same} has the polarity of the label and {other} the opposite one.
_PLAIN = (
    "{the} was {same}",
    "we all found {the} {same}",
    "{the} was {same}, and {the2} was {same2}",
    "nobody could deny that {the} was {same}",
    "how {same} {the} was",
    "what struck us most was how {same} {the} was",
    "to my mind {the} is {same} and {same2}",
    "everyone at our table agreed that {the} was {same}",
)
_NEGATED = (
    "{the} was not {other} at all",
    "nobody who was there would call {the} {other}",
    "{the} was anything but {other}",
    "it would be wrong to describe {the} as {other}",
    "I cannot honestly say that {the} was {other}",
    "there was nothing {other} about {the}",
    "{the} was far from {other}",
    "{the} never once struck me as {other}",
    "neither my friends nor I thought {the} {other}",
    "calling {the} {other} would be a lie",
    "only a fool would think {the} {other}",
    "I disagree with everyone who finds {the} {other}",
)
_CONTRAST = (
    "I expected {the} to be {other}, but it was {same}",
    "everyone had told us {the} was {other}, yet we found it {same}",
    "the critics called {the} {other}; to us it seemed {same}",
    "at first {the} seemed {other}, but by the end it was {same}",
    "{the} used to be {other}, and these days it is {same}",
    "{the} was {same}, not {other} as the critics had claimed",
    "far from being {other}, {the} was {same}",
    "{the} is {same} now, although it was {other} last year",
    "{the} was {same} after all the talk of how {other} it would be",
    "I had heard {the} was {other} and it turned out {same}",
    "{the} proved {same} where we had been promised something {other}",
    "the advert made {the} look {other}, while in truth it is {same}",
    "my sister says {the} is {other}, but she is wrong: it is {same}",
    "{the} was {same}, however {other} others may find it",
)
_CONCESSION = (
    "although {the2} was {other}, {the} was {same}, and that is what counts",
    "{the2} may be {other}, but what matters to me is {the}, which was {same}",
    "{the} was {same}, even if {the2} was {other}, and my verdict rests on the former",
    "never mind the {other} {thing2}: {the} was {same}",
    "what I will remember is how {same} {the} was, not how {other} {the2} was",
    "yes, {the2} was {other}, yet overall the day was {same}",
    "overall I found it {same}, despite the {other} {thing2}",
    "{the2} seemed {other}, but everything else was {same}",
)
_COMPARED = (
    "next to this {thing}, the one we had before looks {other}",
    "the old {thing} was {other}, and this one is the exact opposite",
    "{the} is as {same} as the old one was {other}",
    "unlike the {other} {thing} we had last time, this one is {same}",
    "this {thing} is {same}; the one next door is {other}",
    "compared with this {thing}, every other one is {other}",
    "I swapped a truly {other} {thing} for this {same} one",
)
_KINDS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "plain": (_PLAIN, 0.25),
    "negation": (_NEGATED, 0.2),
    "contrast": (_CONTRAST, 0.3),
    "concession": (_CONCESSION, 0.15),
    "comparison": (_COMPARED, 0.1),
}
SENTIMENT_KINDS = tuple(_KINDS)
"""The ways in which a sentence says what its writer thinks."""

_THING, _JUDGEMENT = "<thing>", "<judgement>"
_OPENINGS = (
    "honestly, ", "in short, ", "last Friday ", "on our second visit ", "if you ask me, ",
    "for the record, ", "looking back, ", "all things considered, ", "this time ",
    "to be fair, ", "as a regular customer I must say: ", "after a long day, ",
)  # fmt: skip
_CLOSINGS = (
    " if you ask me", " in my view", ", my husband agrees", ", I have to say",
    ", as you can imagine",
    ", and I go there often", ", and so say my colleagues", " from start to finish",
)  # fmt: skip


def _make(rng: random.Random, label: int) -> Row:
    good = label == 1
    domain = rng.choice(DOMAINS)
    thing, thing2 = rng.sample(domain.things, 2)
    kinds = _KINDS.values()
    (frames,) = rng.choices([k for k, _ in kinds], weights=[w for _, w in kinds])
    text = fill(
        rng,
        frames,
        the=f"the {thing}",
        the2=f"the {thing2}",
        thing=thing,
        thing2=thing2,
        same=draw_judgement(rng, domain, good=good),
        same2=draw_judgement(rng, domain, good=good),
        other=draw_judgement(rng, domain, good=not good),
    )
    chance = rng.random()
    if chance < 0.3:
        text = rng.choice(_OPENINGS) + text
    elif chance < 0.5:
        text += rng.choice(_CLOSINGS)
    return Row(finish_sentence(text), None, label)


SENTIMENT = GeneratedTask(
    name="sentiment",
    label_names=("negative", "positive"),
    description="Whether the writer of a review is pleased, across negation, contrast, "
    "concession and comparison.",
    make=_make,
)


def find_sentiment_kind(text: str) -> str | None:
    """Say which of `SENTIMENT_KINDS` a text of the task is, from its words alone.

    Returns:
        The kind; None if the grammar does not write this text.

    Examples:
        >>> find_sentiment_kind("Honestly, nobody who was there would call the soup bland.")
        'negation'
    """
    return _kinds_by_skeleton().get(_skeleton(text))


@cache
def _kinds_by_skeleton() -> Mapping[str, str]:
    slots = dict.fromkeys(("the", "the2"), f"the {_THING}")
    slots |= dict.fromkeys(("thing", "thing2"), _THING)
    slots |= dict.fromkeys(("same", "same2", "other"), _JUDGEMENT)
    return {_skeleton(f.format(**slots)): k for k, (frames, _) in _KINDS.items() for f in frames}


def _skeleton(text: str) -> str:
    """Return the frame of a text, with one sign for each thing and each judgement."""
    text = text.lower().removesuffix(".")
    opening = next((start for start in _OPENINGS if text.startswith(start.lower())), "")
    closing = next((end for end in _CLOSINGS if text.endswith(end.lower())), "")
    text = text.removeprefix(opening.lower()).removesuffix(closing.lower())
    return _words(judged=True).sub(_JUDGEMENT, _words(judged=False).sub(_THING, text))


@cache
def _words(*, judged: bool) -> re.Pattern[str]:
    """Return a pattern of all judgements, or of all things."""
    domains = (ANYTHING, *DOMAINS)
    found = [w for d in domains for w in ((*d.bad, *d.good) if judged else d.things)]
    longest_first = sorted(found, key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b")

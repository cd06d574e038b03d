"""Answer entailment: does a sentence answer a question, or only talk about the same thing?"""

from __future__ import annotations

import random

from cl_graft.tasks.generated.generated_task import GeneratedTask
from cl_graft.tasks.generated.grammar import fill, finished, other_than
from cl_graft.tasks.generated.people import CITIES, NAMES, ROLES
from cl_graft.tasks.task import Row

__all__ = ["ANSWER_ENTAILMENT"]

# plain form / past / object
_DEEDS = tuple(
    (verb.split("/")[0], verb.split("/")[1], thing)
    for verb, things in (
        ("repair/repaired", "the clock,the old bicycle,the organ,the roof,the radio,the fence"),
        ("buy/bought", "the piano,the blue car,the vineyard,the camera,the fishing boat,the ring"),
        ("sell/sold", "the farm,the painting,the bakery,the horse,the stamp collection,the house"),
        ("find/found", "the lost wallet,the map,the silver coin,the missing dog,the fossil"),
        ("paint/painted", "the portrait,the kitchen,the mural,the front door,the garden wall"),
        ("write/wrote", "the letter,the novel,the song,the report,the cookbook,the speech"),
        ("hide/hid", "the key,the necklace,the diary,the treasure,the spare money"),
        ("build/built", "the tree house,the bridge,the canoe,the windmill,the greenhouse"),
        ("lose/lost", "the passport,the umbrella,the contract,the chess match,the gold watch"),
        ("photograph/photographed", "the eagle,the lighthouse,the wedding,the comet,the castle"),
        ("teach/taught", "the evening class,the dance course,the history lesson"),
        ("clean/cleaned", "the fountain,the chapel,the aquarium,the statue,the workshop"),
    )
    for thing in things.split(",")
)
_SPOTS = (
    "in the cellar", "at the harbour", "near the railway station", "in a village by the sea",
    "behind the town hall", "at the foot of the mountain", "in the attic", "beside the river",
    "at an antique shop", "in the school yard", "on a small island", "under the old oak tree",
    *(f"in {city}" for city in CITIES),
)  # fmt: skip
_TIMES = (
    "on Monday", "last Tuesday", "in the spring", "three years ago", "in 1987", "at midnight",
    "on the first of May", "yesterday morning", "in early autumn", "last weekend", "in 2004",
    "shortly before noon", "on New Year's Eve", "two weeks ago", "at dawn", "in December",
    "in 1962", "late on Friday evening", "an hour ago", "in the summer of 1999",
)  # fmt: skip
_REASONS = (
    "because a friend had asked for it", "to please the neighbours", "to settle a debt",
    "because it was about to rain", "in order to win a bet", "to surprise the children",
    "because nobody else would", "for the sake of the family", "to raise money for charity",
    "because it brought back memories", "to avoid a quarrel", "out of curiosity",
    "because the owner was moving abroad", "to impress a visitor", "out of sheer boredom",
)  # fmt: skip
_MEANS = (
    "with the help of a ladder", "with a borrowed set of tools", "with great patience",
    "by following an old manual", "by working through the night", "with a magnifying glass",
    "by asking experts for advice", "with nothing but string and glue", "by sheer luck",
    "with a team of volunteers", "by going there step by step", "with the aid of a computer",
)  # fmt: skip
_ATTRIBUTES = (_SPOTS, _TIMES, _REASONS, _MEANS)
_QUESTIONS: tuple[tuple[str, ...], ...] = (
    ("where did {who} {do} {it}?", "in what place did {who} {do} {it}?",
     "at which spot did {who} {do} {it}?"),
    ("when did {who} {do} {it}?", "at what time did {who} {do} {it}?",
     "on what date did {who} {do} {it}?"),
    ("why did {who} {do} {it}?", "for what reason did {who} {do} {it}?",
     "what made {who} {do} {it}?"),
    ("how did {who} {do} {it}?", "by what means did {who} {do} {it}?",
     "in what way did {who} {do} {it}?"),
)  # fmt: skip
_CLAUSES: tuple[tuple[str, ...], ...] = (
    ("where {who} {did} {it}", "in what place {who} {did} {it}"),
    ("when {who} {did} {it}", "at what time {who} {did} {it}"),
    ("why {who} {did} {it}", "for what reason {who} {did} {it}"),
    ("how {who} {did} {it}", "by what means {who} {did} {it}"),
)
# {detail} is a place, time, reason or way; {clause} repeats the question; {source} is a person.
_TOLD = (
    "{who} {did} {it} {detail}",
    "it was {detail} that {who} {did} {it}",
    "{who}, as we all know, {did} {it} {detail}",
    "{source} knows {clause}: it was {detail}",
)
_WONDERED = (
    "{source} would like to know {clause}",
    "{who} {did} {it}, and {source} does not know {clause}",
    "as we all know, {who} {did} {it}, but {clause} is a mystery",
    "{source} wonders {clause}, and so do we",
)
# A detail is settled when it is claimed and rightly so, or denied and wrongly so.
_CLAIMS = (
    "{source} says that {fact}", "{source} insists that {fact}", "{source} is sure that {fact}",
    "{source} believes that {fact}", "{source} has always claimed that {fact}",
    "{source} told the police that {fact}", "according to {source}, {fact}",
)  # fmt: skip
_DENIALS = (
    "{source} denies that {fact}", "{source} doubts that {fact}",
    "{source} does not believe that {fact}", "{source} says it is untrue that {fact}",
    "{source} laughs at the idea that {fact}", "{source} has never accepted that {fact}",
    "{source} told the police it was a lie that {fact}",
)  # fmt: skip
_RIGHTLY = (
    ", and rightly so", ", and that is correct", ", and the records agree",
    ", which turned out right",
    ", and {source} is not mistaken", ", and we have proof of that", ", and nobody can object",
)  # fmt: skip
_WRONGLY = (
    ", but wrongly so", ", but that is not correct", ", but the records disagree",
    ", which turned out wrong", ", but {source} is mistaken", ", but we have proof against that",
    ", but everybody else objects",
)  # fmt: skip
_FACTS = ("{who} {did} {it} {detail}", "it was {detail} that {who} {did} {it}")

_PLAIN = 0.3
"""Share of the rows in which the detail is told, or missing, without a dispute."""

_OFF_THE_POINT = 0.2
"""Share of the negatives that answer another question about the same deed."""


def _person(rng: random.Random) -> str:
    return rng.choice(NAMES) if rng.random() < 0.5 else f"the {rng.choice(ROLES)}"


def _make(rng: random.Random, label: int) -> Row:
    who, source = _person(rng), _person(rng)
    do, did, it = rng.choice(_DEEDS)
    asked = rng.randrange(len(_ATTRIBUTES))
    off_the_point = label == 1 and rng.random() < _OFF_THE_POINT
    told = other_than(rng, asked, len(_ATTRIBUTES)) if off_the_point else asked
    settled = label == 0 or off_the_point
    question = fill(rng, _QUESTIONS[asked], who=who, do=do, it=it)
    answer = fill(
        rng,
        (_answer_frame(rng, settled=settled),),
        who=who,
        did=did,
        it=it,
        source=source,
        detail=rng.choice(_ATTRIBUTES[told]),
        clause=fill(rng, _CLAUSES[told], who=who, did=did, it=it),
    )
    return Row(finished(question), finished(answer), label)


def _answer_frame(rng: random.Random, *, settled: bool) -> str:
    if rng.random() < _PLAIN:
        return rng.choice(_TOLD if settled else _WONDERED)
    claimed = rng.random() < 0.5
    attitude = rng.choice(_CLAIMS if claimed else _DENIALS)
    return attitude.replace("{fact}", rng.choice(_FACTS)) + rng.choice(
        _RIGHTLY if claimed == settled else _WRONGLY
    )


ANSWER_ENTAILMENT = GeneratedTask(
    name="answer_entailment",
    label_names=("entailment", "not_entailment"),
    pair=True,
    description="Whether the second text answers the question, or tells something else about it.",
    make=_make,
)

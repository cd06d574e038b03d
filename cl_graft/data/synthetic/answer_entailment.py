"""Answer entailment: whether a sentence settles a question, or only talks about the same thing.

The second text repeats the question, says whether the matter is settled, and names what people
say. Most negatives leave the matter open; a few settle another question about the same deed.
"""

from __future__ import annotations

import random

from cl_graft.data.synthetic.generated_task import GeneratedTask
from cl_graft.data.synthetic.grammar import draw_other, fill, finish_sentence
from cl_graft.data.synthetic.shared_words import CITIES, NAMES, ROLES
from cl_graft.kinds.rows import Row

# Plain form, past form and object.
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
# Whether the matter is settled decides: {same} says so truly, {other} says the opposite.
_UNSETTLED, _SETTLED = (
    ("a mystery", "unknown", "unclear", "uncertain", "a riddle", "open to doubt", "a puzzle",
     "anybody's guess", "disputed", "impossible to say", "an unsolved question", "pure speculation",
     "a matter of rumour", "doubtful", "hard to establish", "unproven", "undecided", "unresolved"),
    ("perfectly clear", "well known", "certain", "beyond doubt", "an established fact", "proven",
     "common knowledge", "settled", "documented", "on record", "obvious", "confirmed", "undisputed",
     "plain to everybody", "verified", "an open secret", "firmly established", "resolved"),
)  # fmt: skip
_FLAT = (
    "it is {same} {clause}", "{clause} is {same}", "we consider it {same} {clause}",
    "by now it is {same} {clause}", "everybody finds it {same} {clause}",
    "{source} showed that {clause} is {same}",
)  # fmt: skip
_TURNED = (
    "{clause} is anything but {other}", "nobody would call it {other} {clause}",
    "it is far from {other} {clause}", "{source} is wrong to call it {other} {clause}",
    "it was once {other} {clause}, but today it is {same}",
    "{source} thought it {other} {clause}, yet it is {same}",
    "far from being {other}, {clause} is {same}",
    "for years it seemed {other} {clause}; now it is {same}",
    "{clause} is {same}, not {other} as {source} had claimed",
    "{clause} is {same} now, although it was {other} before",
)  # fmt: skip
# What people say is the answer where the matter is settled, and hearsay where it is not.
_SAID = ("; people say {detail}", ": {detail}, it is said", "; they say it was {detail}",
         "; {source2} says {detail}")  # fmt: skip

_FLATLY = 0.4
"""Share of the rows that say outright whether the matter is settled."""

_OFF_THE_POINT = 0.1
"""Share of the negatives that answer another question about the same deed."""


def _draw_person(rng: random.Random) -> str:
    return rng.choice(NAMES) if rng.random() < 0.5 else f"the {rng.choice(ROLES)}"


def _make(rng: random.Random, label: int) -> Row:
    who, source = _draw_person(rng), _draw_person(rng)
    do, did, it = rng.choice(_DEEDS)
    asked = rng.randrange(len(_ATTRIBUTES))
    off_the_point = label == 1 and rng.random() < _OFF_THE_POINT
    told = draw_other(rng, asked, len(_ATTRIBUTES)) if off_the_point else asked
    same, other = _SETTLED, _UNSETTLED
    if label == 1 and not off_the_point:
        same, other = other, same
    question = fill(rng, _QUESTIONS[asked], who=who, do=do, it=it)
    answer = fill(
        rng,
        _FLAT if rng.random() < _FLATLY else _TURNED,
        source=source,
        clause=fill(rng, _CLAUSES[told], who=who, did=did, it=it),
        same=rng.choice(same),
        other=rng.choice(other),
    )
    detail = rng.choice(_ATTRIBUTES[told])
    answer += fill(rng, _SAID, detail=detail, source2=_draw_person(rng))
    return Row(finish_sentence(question), finish_sentence(answer), label)


ANSWER_ENTAILMENT = GeneratedTask(
    name="answer_entailment",
    label_names=("entailment", "not_entailment"),
    description="Whether the second text settles the question, or leaves it open or settles "
    "another.",
    make=_make,
)

"""Urgency: how soon a customer wants help, when the message names other deadlines too."""

from __future__ import annotations

import random

from cl_graft.data.synthetic.generated_task import GeneratedTask
from cl_graft.data.synthetic.grammar import draw_other, fill, finish_sentence
from cl_graft.data.synthetic.shared_words import ANYTHING, draw_judgement
from cl_graft.kinds.rows import Row

_LABELS = ("low", "normal", "high")

_THINGS = (
    "printer", "boiler", "lift", "front door lock", "server", "card reader", "dishwasher", "alarm",
    "phone line", "projector", "coffee machine", "delivery van", "website", "heating", "freezer",
    "payroll program", "booking page", "router", "sound system", "garage door", "water pump",
    "sewing machine", "laptop", "smoke detector", "oven", "scanner", "fire door", "cash register",
)  # fmt: skip
_TROUBLES = (
    "has stopped working", "is leaking", "keeps crashing", "makes a strange noise",
    "will not start",
    "shows an error", "smells of smoke", "loses its connection", "is stuck", "overheats",
    "needs a new part", "jams twice a day", "has a crack in it", "runs very slowly",
)  # fmt: skip
_WHEN: tuple[tuple[str, ...], ...] = (
    ("whenever you have nothing better to do", "some day, if ever", "in a few months",
     "at your leisure", "some time next year", "when you happen to be in the area anyway",
     "after the holidays, if you remember", "at some point in the distant future",
     "once everyone else has been served", "when things are quiet again"),
    ("some time this week", "in the next few days", "by Thursday", "before the weekend",
     "on your usual round tomorrow", "within three working days", "in the course of the week",
     "at the regular appointment", "by the end of the week", "the day after tomorrow"),
    ("right now", "within the hour", "this very minute", "before the doors open at noon today",
     "immediately", "without losing a second", "at once", "in the next ten minutes",
     "before another minute passes", "faster than you have ever come", "straight away"),
)  # fmt: skip
_WANTED = (
    "please come {when}", "we need it fixed {when}", "I would like you to look at it {when}",
    "it has to be dealt with {when}", "send somebody {when}", "repair it {when}",
    "I ask you to call back {when}", "have it seen to {when}",
)  # fmt: skip
# {when} is the deadline that counts, {other} one that does not.
_INSTEAD = (
    "I wrote that you should come {other}, but now I need you {when}",
    "my colleague asked you to come {other}; in fact it must be done {when}",
    "not {other} but {when} is when we need you",
    "come {when}, not {other}",
    "you offered to come {other}, and I am asking you to come {when}",
    "last time you came {other}; this time come {when}",
    "the manual says to replace it {other}, yet I want it replaced {when}",
    "it need not be fixed {other}, it should be fixed {when}",
    "forget what I said about coming {other}: do it {when}",
    "please come {when}, even though the office told you {other}",
    "the neighbours want theirs fixed {other}, whereas ours should be done {when}",
)
_MESSAGES = (
    "the {thing} {trouble}: {wish}", "{wish}, the {thing} {trouble}",
    "our {thing} {trouble}; {wish}",
    "about the {thing} that {trouble}: {wish}", "{wish}. It is the {thing}, which {trouble}",
    "your service was {word} last time, and the {thing} {trouble}; {wish}",
    "the {word} {thing} {trouble}. {wish2}",
)  # fmt: skip


def _make(rng: random.Random, label: int) -> Row:
    when = rng.choice(_WHEN[label])
    other = rng.choice(_WHEN[draw_other(rng, label, len(_LABELS))])
    wish = fill(rng, _WANTED if rng.random() < 0.3 else _INSTEAD, when=when, other=other)
    text = fill(
        rng,
        _MESSAGES,
        thing=rng.choice(_THINGS),
        trouble=rng.choice(_TROUBLES),
        word=draw_judgement(rng, ANYTHING, good=rng.random() < 0.5),
        wish=wish,
        wish2=finish_sentence(wish),
    )
    return Row(finish_sentence(text), None, label)


URGENCY = GeneratedTask(
    name="urgency",
    label_names=_LABELS,
    description="How soon a customer wants help, among other deadlines that do not count.",
    make=_make,
)

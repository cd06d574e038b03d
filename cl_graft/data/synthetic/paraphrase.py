"""Paraphrase: same meaning in other words, or another meaning in the same words.

The first text says who did what to whom, with people in the roles they usually have. The second
says it again in the other voice, with synonyms, with two negations that cancel; or it swaps the
roles, or leaves a single negation standing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from cl_graft.data.synthetic.generated_task import GeneratedTask
from cl_graft.data.synthetic.grammar import fill, finish_sentence
from cl_graft.data.synthetic.people import CITIES
from cl_graft.data.text_task import Row

__all__ = ["PARAPHRASE"]


@dataclass(frozen=True)
class _Scene:
    """Who (`doers`) does what to whom (`others`), with synonyms of every part.

    `plain`, `past` and `done` hold the verb's plain, past and participle forms, in one order.
    """

    doers: tuple[str, ...]
    others: tuple[str, ...]
    plain: tuple[str, ...]
    past: tuple[str, ...]
    done: tuple[str, ...]


def _scene(doers: str, others: str, *verbs: str) -> _Scene:
    plain, past, done = zip(*(verb.split("/") for verb in verbs), strict=True)
    return _Scene(tuple(doers.split("/")), tuple(others.split("/")), plain, past, done)


_SCENES = (
    _scene("doctor/physician", "patient/sick man", "treat/treated/treated"),
    _scene("doctor/physician", "wounded soldier", "cure/cured/cured", "heal/healed/healed"),
    _scene(
        "teacher/schoolmaster",
        "pupil/schoolboy",
        "teach/taught/taught",
        "instruct/instructed/instructed",
    ),
    _scene("examiner", "candidate", "test/tested/tested", "examine/examined/examined"),
    _scene(
        "detective/police officer",
        "thief/burglar",
        "arrest/arrested/arrested",
        "catch/caught/caught",
    ),
    _scene(
        "guard/prison guard",
        "prisoner/convict",
        "search/searched/searched",
        "frisk/frisked/frisked",
    ),
    _scene("lifeguard/rescuer", "drowning boy", "rescue/rescued/rescued", "save/saved/saved"),
    _scene("employer/boss", "trainee/apprentice", "hire/hired/hired", "employ/employed/employed"),
    _scene("judge/magistrate", "smuggler", "sentence/sentenced/sentenced"),
    _scene("jury", "forger/counterfeiter", "convict/convicted/convicted"),
    _scene("waiter/barman", "guest/customer", "serve/served/served"),
    _scene("barber/hairdresser", "bearded man", "shave/shaved/shaved"),
    _scene("mother/mum", "baby/infant", "feed/fed/fed", "nourish/nourished/nourished"),
    _scene("nurse", "newborn/newborn child", "bathe/bathed/bathed", "wash/washed/washed"),
    _scene("cat", "mouse", "chase/chased/chased", "pursue/pursued/pursued"),
    _scene("wolf", "lamb", "devour/devoured/devoured", "eat/ate/eaten"),
    _scene("lion", "zebra", "hunt/hunted/hunted", "stalk/stalked/stalked"),
    _scene("owl", "vole", "catch/caught/caught", "seize/seized/seized"),
    _scene("dentist", "nervous patient", "examine/examined/examined", "check/checked/checked"),
    _scene(
        "portrait artist/portrait painter",
        "duchess",
        "paint/painted/painted",
        "portray/portrayed/portrayed",
    ),
    _scene("reporter/journalist", "film star/celebrity", "interview/interviewed/interviewed"),
    _scene(
        "taxi driver/cabbie",
        "tourist/holidaymaker",
        "transport/transported/transported",
        "drive/drove/driven",
    ),
    _scene(
        "babysitter/nanny", "toddler/small child", "watch/watched/watched", "mind/minded/minded"
    ),
    _scene("trainer/coach", "runner/sprinter", "train/trained/trained", "coach/coached/coached"),
    _scene("farmer", "cow", "milk/milked/milked"),
    _scene("jockey/rider", "pony", "saddle/saddled/saddled"),
    _scene("cowboy", "wild horse", "tame/tamed/tamed", "break in/broke in/broken in"),
    _scene(
        "lender/creditor",
        "debtor/borrower",
        "sue/sued/sued",
        "take to court/took to court/taken to court",
    ),
    _scene("vet/animal doctor", "puppy/young dog", "vaccinate/vaccinated/vaccinated"),
    _scene(
        "landlord/house owner",
        "tenant/lodger",
        "evict/evicted/evicted",
        "throw out/threw out/thrown out",
    ),
    _scene("fisherman/angler", "trout", "catch/caught/caught", "land/landed/landed"),
    _scene("museum guide", "school class", "guide/guided/guided", "lead/led/led"),
    _scene("critic/reviewer", "novelist/author", "review/reviewed/reviewed"),
    _scene("firefighter/fireman", "trapped child", "free/freed/freed", "rescue/rescued/rescued"),
    _scene("spider", "fly", "trap/trapped/trapped", "snare/snared/snared"),
    _scene("frog", "mosquito", "swallow/swallowed/swallowed", "gulp down/gulped down/gulped down"),
    _scene("referee", "striker", "book/booked/booked", "caution/cautioned/cautioned"),
    _scene("customs officer", "traveller", "stop/stopped/stopped", "halt/halted/halted"),
    _scene("shepherd", "stray sheep", "find/found/found", "track down/tracked down/tracked down"),
    _scene(
        "lawyer/attorney",
        "accused man",
        "defend/defended/defended",
        "represent/represented/represented",
    ),
    _scene(
        "therapist/psychologist",
        "anxious client",
        "counsel/counselled/counselled",
        "advise/advised/advised",
    ),
    _scene("librarian", "noisy student", "hush/hushed/hushed", "silence/silenced/silenced"),
    _scene("ticket inspector", "fare dodger", "fine/fined/fined", "penalise/penalised/penalised"),
    _scene("hunter", "deer/stag", "shoot/shot/shot"),
    _scene(
        "general/commander",
        "young recruit",
        "command/commanded/commanded",
        "order about/ordered about/ordered about",
    ),
    _scene("casting director", "unknown actor", "audition/auditioned/auditioned"),
    _scene(
        "talent scout", "young footballer", "discover/discovered/discovered", "spot/spotted/spotted"
    ),
    _scene(
        "paramedic",
        "crash victim",
        "revive/revived/revived",
        "resuscitate/resuscitated/resuscitated",
    ),
)
_TIMES = (
    "last week", "on Sunday", "in the spring", "after the storm", "years ago", "that night",
    "during the trip", "before lunch", "early in May", "at the weekend", "twice", "in the end",
    *(f"in {city}" for city in CITIES),
)  # fmt: skip
_ACTIVE = ("{a} {past} {b} {when}", "{when}, {a} {past} {b}", "{a}, {when}, {past} {b}",
           "it was {a} who {past} {b} {when}", "what {a} did {when} was {plain} {b}")  # fmt: skip
_PASSIVE = ("{b} was {done} by {a} {when}", "{when}, {b} was {done} by {a}",
            "{b}, {when}, was {done} by {a}",
            "it was {b} who was {done} by {a} {when}")  # fmt: skip
_NOT = (
    "{a} did not {plain} {b} {when}", "{when}, {a} refused to {plain} {b}",
    "{a} failed to {plain} {b} {when}", "{a} never managed to {plain} {b} {when}",
    "{when}, {a} forgot to {plain} {b}", "{b} was not {done} by {a} {when}",
    "it is false that {a} {past} {b} {when}", "nobody claims that {a} {past} {b} {when}",
    "it is a lie that {b} was {done} by {a} {when}", "{a} could not {plain} {b} {when}",
    "I doubt that {a} {past} {b} {when}", "{a} was unable to {plain} {b} {when}",
)  # fmt: skip
_NOT_NOT = (
    "{a} did not fail to {plain} {b} {when}", "{when}, {a} did not refuse to {plain} {b}",
    "{a} never forgot to {plain} {b} {when}", "it is not a lie that {a} {past} {b} {when}",
    "it is not false that {b} was {done} by {a} {when}", "{a} could not but {plain} {b} {when}",
    "nobody doubts that {a} {past} {b} {when}", "I do not doubt that {b} was {done} by {a} {when}",
    "nobody claims that {a} failed to {plain} {b} {when}",
    "it is false that {a} did not {plain} {b} {when}",
    "{a} was not unable to {plain} {b} {when}", "it is a lie that {b} was not {done} by {a} {when}",
)  # fmt: skip

_ROLES = 0.3
"""Share of the rows whose meaning turns on who does it; on the others it turns on negation."""


def _say(
    rng: random.Random, frames: tuple[str, ...], scene: _Scene, *, when: str, swapped: bool
) -> str:
    doer, other = f"the {rng.choice(scene.doers)}", f"the {rng.choice(scene.others)}"
    verb = rng.randrange(len(scene.plain))
    text = fill(
        rng,
        frames,
        a=other if swapped else doer,
        b=doer if swapped else other,
        plain=scene.plain[verb],
        past=scene.past[verb],
        done=scene.done[verb],
        when=when,
    )
    return finish_sentence(text)


def _make(rng: random.Random, label: int) -> Row:
    scene, when, same = rng.choice(_SCENES), rng.choice(_TIMES), label == 1
    voices = (_ACTIVE, _PASSIVE)
    first = _say(rng, rng.choice(voices), scene, when=when, swapped=False)
    if rng.random() < _ROLES:
        second = _say(rng, rng.choice(voices), scene, when=when, swapped=not same)
    else:
        second = _say(rng, _NOT_NOT if same else _NOT, scene, when=when, swapped=False)
    return Row(first, second, label)


PARAPHRASE = GeneratedTask(
    name="paraphrase",
    label_names=("different", "same"),
    pair=True,
    description="Whether two sentences say the same, across synonyms, passives, swapped roles and "
    "single or double negation.",
    make=_make,
)

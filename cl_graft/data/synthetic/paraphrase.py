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
from cl_graft.data.synthetic.shared_words import CITIES
from cl_graft.kinds.rows import Row


@dataclass(frozen=True)
class _Scene:
    """Who (`doers`) does what to whom (`others`), with synonyms of every part.

    A verb is its plain form, its past and its participle.
    """

    doers: tuple[str, ...]
    others: tuple[str, ...]
    verbs: tuple[tuple[str, str, str], ...]


def _scene(line: str) -> _Scene:
    doers, others, *verbs = (tuple(part.split("/")) for part in line.split(" | "))
    # A verb of two forms has its past as participle.
    return _Scene(doers, others, tuple((verb[0], verb[1], verb[-1]) for verb in verbs))


_SCENES = tuple(
    _scene(line.strip())
    for line in """
        doctor/physician | patient/sick man | treat/treated
        doctor/physician | wounded soldier | cure/cured | heal/healed
        teacher/schoolmaster | pupil/schoolboy | teach/taught | instruct/instructed
        examiner | candidate | test/tested | examine/examined
        detective/police officer | thief/burglar | arrest/arrested | catch/caught
        guard/prison guard | prisoner/convict | search/searched | frisk/frisked
        lifeguard/rescuer | drowning boy | rescue/rescued | save/saved
        employer/boss | trainee/apprentice | hire/hired | employ/employed
        judge/magistrate | smuggler | sentence/sentenced
        jury | forger/counterfeiter | convict/convicted
        waiter/barman | guest/customer | serve/served
        barber/hairdresser | bearded man | shave/shaved
        mother/mum | baby/infant | feed/fed | nourish/nourished
        nurse | newborn/newborn child | bathe/bathed | wash/washed
        cat | mouse | chase/chased | pursue/pursued
        wolf | lamb | devour/devoured | eat/ate/eaten
        lion | zebra | hunt/hunted | stalk/stalked
        owl | vole | catch/caught | seize/seized
        dentist | nervous patient | examine/examined | check/checked
        portrait artist/portrait painter | duchess | paint/painted | portray/portrayed
        reporter/journalist | film star/celebrity | interview/interviewed
        taxi driver/cabbie | tourist/holidaymaker | transport/transported | drive/drove/driven
        babysitter/nanny | toddler/small child | watch/watched | mind/minded
        trainer/coach | runner/sprinter | train/trained | coach/coached
        farmer | cow | milk/milked
        jockey/rider | pony | saddle/saddled
        cowboy | wild horse | tame/tamed | break in/broke in/broken in
        lender/creditor | debtor/borrower | sue/sued | take to court/took to court/taken to court
        vet/animal doctor | puppy/young dog | vaccinate/vaccinated
        landlord/house owner | tenant/lodger | evict/evicted | throw out/threw out/thrown out
        fisherman/angler | trout | catch/caught | land/landed
        museum guide | school class | guide/guided | lead/led
        critic/reviewer | novelist/author | review/reviewed
        firefighter/fireman | trapped child | free/freed | rescue/rescued
        spider | fly | trap/trapped | snare/snared
        frog | mosquito | swallow/swallowed | gulp down/gulped down
        referee | striker | book/booked | caution/cautioned
        customs officer | traveller | stop/stopped | halt/halted
        shepherd | stray sheep | find/found | track down/tracked down
        lawyer/attorney | accused man | defend/defended | represent/represented
        therapist/psychologist | anxious client | counsel/counselled | advise/advised
        librarian | noisy student | hush/hushed | silence/silenced
        ticket inspector | fare dodger | fine/fined | penalise/penalised
        hunter | deer/stag | shoot/shot
        general/commander | young recruit | command/commanded | order about/ordered about
        casting director | unknown actor | audition/auditioned
        talent scout | young footballer | discover/discovered | spot/spotted
        paramedic | crash victim | revive/revived | resuscitate/resuscitated
    """.strip().splitlines()
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
    plain, past, done = rng.choice(scene.verbs)
    text = fill(
        rng,
        frames,
        a=other if swapped else doer,
        b=doer if swapped else other,
        plain=plain,
        past=past,
        done=done,
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
    description="Whether two sentences say the same, across synonyms, passives, swapped roles and "
    "single or double negation.",
    make=_make,
)

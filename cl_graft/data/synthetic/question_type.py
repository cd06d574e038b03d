"""Question type: what kind of answer is asked for, when the question mentions other kinds too.

The classes follow the coarse ones of TREC (Li and Roth, 2002, https://aclanthology.org/C02-1150).
"""

from __future__ import annotations

import random

from cl_graft.data.synthetic.generated_task import GeneratedTask
from cl_graft.data.synthetic.grammar import a, draw_other, fill, finish_sentence
from cl_graft.kinds.rows import Row

_LABELS = ("description", "entity", "expression", "human", "location", "number")

_PEOPLE = (
    "painter", "inventor", "composer", "explorer", "queen", "poet", "engineer", "nurse", "general",
    "sculptor", "pilot", "botanist", "mayor", "novelist", "sailor", "architect", "dancer", "judge",
    "emperor", "singer", "scientist", "carpenter", "priest", "athlete", "merchant", "teacher",
)  # fmt: skip
_PLACES = (
    "city", "river", "island", "mountain", "country", "harbour", "valley", "desert", "village",
    "lake", "province", "castle", "canyon", "coast", "capital", "bay", "forest", "square",
)  # fmt: skip
_THINGS = (
    "bridge", "telescope", "violin", "compass", "lighthouse", "locomotive", "statue", "clock",
    "printing press", "tapestry", "submarine", "balloon", "organ", "microscope", "windmill",
    "steam engine", "mosaic", "cathedral bell", "typewriter", "chess set", "globe", "parachute",
)  # fmt: skip
_KINDS = (
    "animal", "instrument", "drink", "colour", "metal", "plant", "language", "vehicle", "sport",
    "disease", "fabric", "fruit", "tool", "weapon", "gemstone", "currency", "dance", "food",
    "chemical", "bird", "flower", "spice", "musical piece", "religion",
)  # fmt: skip
_AMOUNTS = (
    "number of visitors", "price", "population", "year", "distance in miles", "temperature",
    "percentage of voters", "weight", "height", "date", "depth in metres", "speed", "age",
    "length of time", "number of bridges", "annual rainfall", "size of the crowd", "cost",
)  # fmt: skip
_PLURALS = (
    "soldiers", "ships", "windows", "bridges", "horses", "islands", "children", "songs",
    "languages", "clocks", "paintings", "churches", "visitors", "coins", "rivers", "days",
)  # fmt: skip
_TOKENS = ("NASA", "UNESCO", "LED", "GPS", "BBC", "RSVP", "DNA", "FIFA", "CEO", "HTML", "PDF",
           "ATM", "USB", "NATO", "MRI", "AM", "IQ", "SOS", "VIP", "FAQ", "ISBN",
           "SCUBA")  # fmt: skip
_MEANT = (
    "lighthouse keeper", "good luck", "thank you", "snowstorm", "grandmother", "kilometre",
    "full moon", "happy birthday", "railway station", "stepbrother", "horse race", "teaspoon",
    "see you tomorrow", "police officer", "miles per hour", "old friend", "fisherman",
)  # fmt: skip
_TONGUES = ("Swedish", "Latin", "Portuguese", "Turkish", "Welsh", "Greek", "Hindi", "Dutch",
            "Swahili", "Finnish", "Polish", "Japanese", "Hawaiian", "Arabic")  # fmt: skip
_NAMES = (
    "Lima", "Oslo", "Vienna", "Malta", "Kyoto", "Bergen", "Quebec", "Tunis", "Lisbon", "Prague",
    "Havana", "Dublin", "Crete", "Nairobi", "Geneva", "Madras", "Alaska", "Florence", "Warsaw",
)  # fmt: skip
_NATURE = (
    "tides rise", "leaves turn red", "volcanoes erupt", "bees dance", "ice floats", "cats purr",
    "stars twinkle", "iron rusts", "rainbows form", "salmon swim upstream", "bread rises",
    "glaciers move", "owls hunt at night", "compasses point north", "magnets attract",
    "soap removes grease", "the moon changes shape", "deserts spread",
)  # fmt: skip
_DEEDS = (
    "built the {thing}", "bought the {thing}", "lost the {thing}", "repaired the {thing}",
    "stole the {thing}", "designed the {thing}", "described the {thing}", "sold the {thing}",
    "ruled {name}", "left {name}", "visited {name}", "mapped the {place}", "defended {name}",
    "crossed the {place}", "discovered the {place}", "founded a school in {name}",
)  # fmt: skip

# What can follow "tell me": {whose} is a relative clause, {past} a deed and {after} an addition
# that names things of the other classes.
_ASKED: tuple[tuple[str, ...], ...] = (
    (
        "why the {person} {deed}", "how the {person} {deed}", "why {nature}", "how {nature}",
        "what caused the fire in {name}", "what the {thing} was used for",
        "what it means that {nature}", "the reason why the {person} {deed}",
        "what {a_thing} is", "what happened after the {person} {deed}",
        "the purpose of the {thing} in {name}", "the difference between {a_thing} and {a_thing2}",
        "what made the {person} leave the {place}", "how to repair {a_thing}",
        "what the {person} did for a living", "the story behind the {thing} of {name}",
    ),
    (
        "which {kind} the {person} {loved}", "what {kind} the {person} brought to {name}",
        "the {kind} that made {name} famous", "what {kind} comes from {name}",
        "the {kind} which the {person} {loved}", "what the {person} carried to {name}",
        "which {kind} is found in the {place}", "the {kind} shown on the flag of {name}",
        "what kind of {kind} the {person} gave the {person2}",
        "what was hidden in the {thing} of {name}", "what {kind} the {thing} was named after",
    ),
    (
        "what {token} stands for", "what the letters {token} mean", "the {tongue} word for {meant}",
        "how people in {name} say {meant}", "the abbreviation for {meant}",
        "what {meant} is called in {tongue}", "the full form of {token}",
        "the slang term that {person}s use for {meant}", "which acronym means {meant}",
        "what {person}s in {name} call a {place}", "the short form of {meant}",
        "another word for {thing}", "the {tongue} expression for {meant}",
    ),
    (
        "who {deed}", "which {person} {deed}", "what {person} {deed}", "the {person} who {deed}",
        "who taught the {person} to build {a_thing}", "the name of the {person} who {deed}",
        "whose {thing} stood in {name}", "which {person} gave the {thing} to {name}",
        "who was the first {person} that {deed}", "the person behind the {thing} in {name}",
        "what {person} is shown beside the {thing}", "which team of {person}s {deed}",
    ),
    (
        "where the {person} {deed}", "which {place} the {person} was born in",
        "what {place} the {person} came from", "the {place} where the {person} {deed}",
        "in which {place} the {thing} stands", "what {place} lies east of {name}",
        "where the {thing} is kept", "where the {person} met the {person2}",
        "the name of the {place} where {nature}", "which {place} is home to the {thing}",
        "what {place} the {thing} was shipped to", "where to find the {kind} of {name}",
    ),
    (
        "how many {plural} the {person} owned", "what year the {person} {deed}",
        "when the {person} {deed}", "the {amount} of {name}", "how old the {person} was in {name}",
        "the year in which the {person} {deed}", "how much the {person} paid for the {thing}",
        "how far the {place} is from {name}", "how tall the {thing} of {name} is",
        "what the {amount} of {name} was", "how many {plural} there are in {name}",
        "how long the {person} stayed in {name}", "how often the {person} came to {name}",
        "the {amount} recorded when the {person} {deed}",
    ),
)  # fmt: skip
_LOVED = ("loved", "feared", "studied", "collected", "painted", "sold", "named", "discovered")

_DIRECT = (
    "tell me {asked}", "do you know {asked}?", "can you find out {asked}?",
    "I would like to know {asked}", "please explain to me {asked}", "could anyone say {asked}?",
    "what I want to learn is {asked}", "have you any idea {asked}?", "remind me {asked}",
    "does the guide book say {asked}?",
)  # fmt: skip
_BESIDES = (
    "I know {known}, but not {asked}", "never mind {known}; tell me {asked}",
    "do you know {asked}? I already know {known}", "everyone knows {known}; can you say {asked}?",
    "having learned {known}, she now asks {asked}", "forget about {known}: I asked {asked}",
    "before you get to {known}, tell me {asked}", "can you tell me {asked}, and not {known}?",
    "you told me {known} when I had asked {asked}",
    "the guide explained {known}, but never {asked}",
)  # fmt: skip


def _draw_asked(rng: random.Random, label: int) -> str:
    person, person2 = rng.sample(_PEOPLE, 2)
    thing, thing2 = rng.sample(_THINGS, 2)
    place, name = rng.choice(_PLACES), rng.choice(_NAMES)
    return fill(
        rng,
        _ASKED[label],
        person=person,
        person2=person2,
        thing=thing,
        a_thing=a(thing),
        a_thing2=a(thing2),
        place=place,
        name=name,
        kind=rng.choice(_KINDS),
        amount=rng.choice(_AMOUNTS),
        plural=rng.choice(_PLURALS),
        token=rng.choice(_TOKENS),
        meant=rng.choice(_MEANT),
        tongue=rng.choice(_TONGUES),
        nature=rng.choice(_NATURE),
        loved=rng.choice(_LOVED),
        deed=fill(rng, _DEEDS, thing=thing2, name=name, place=place),
    )


def _make(rng: random.Random, label: int) -> Row:
    asked = _draw_asked(rng, label)
    if rng.random() < 0.35:
        text = fill(rng, _DIRECT, asked=asked)
    else:
        known = _draw_asked(rng, draw_other(rng, label, len(_LABELS)))
        text = fill(rng, _BESIDES, asked=asked, known=known)
    return Row(finish_sentence(text), None, label)


QUESTION_TYPE = GeneratedTask(
    name="question_type",
    label_names=_LABELS,
    description="What kind of answer a question wants, whatever else it mentions.",
    make=_make,
)

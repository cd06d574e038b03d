"""Words that several grammars share: people, cities, things that people review, praise and blame.

They are shared so that tasks use the same words while asking for different readings of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

NAMES = (
    "Maria", "Tom", "Aisha", "Viktor", "Elena", "Samuel", "Ingrid", "Omar", "Priya", "Lucas",
    "Hannah", "Diego", "Mei", "Arthur", "Fatima", "Nils", "Clara", "Kofi", "Rosa", "Ivan",
    "Leila", "Peter", "Yuki", "Daniel", "Greta", "Marcus", "Nadia", "Felix", "Olga", "Henry",
)  # fmt: skip
ROLES = (
    "nurse", "pilot", "baker", "lawyer", "gardener", "teacher", "plumber", "singer", "farmer",
    "librarian", "dentist", "sailor", "painter", "engineer", "tailor", "mayor", "coach", "editor",
    "waiter", "surgeon", "carpenter", "journalist", "driver", "chemist", "banker", "architect",
    "guard", "student", "manager", "violinist", "postman", "chef", "actor", "electrician",
)  # fmt: skip
CITIES = (
    "Oslo", "Lima", "Vienna", "Kyoto", "Lisbon", "Prague", "Dublin", "Nairobi", "Geneva", "Boston",
    "Warsaw", "Naples", "Bergen", "Toronto", "Athens", "Madrid", "Sydney", "Riga", "Cairo", "Hanoi",
)  # fmt: skip


@dataclass(frozen=True)
class Domain:
    """One kind of thing and its own words of blame and praise."""

    things: tuple[str, ...]
    bad: tuple[str, ...]
    good: tuple[str, ...]


def _domain(*, things: str, bad: str, good: str) -> Domain:
    return Domain(*(tuple(words.split(", ")) for words in (things, bad, good)))


ANYTHING = _domain(
    things="result, effect, outcome, experience",
    bad="dreadful, terrible, awful, disappointing, mediocre, poor, horrible, dismal, miserable, "
    "lousy, shoddy, hopeless, pathetic, abysmal, atrocious, unbearable, depressing, second-rate, "
    "unpleasant, painful, annoying, lamentable, useless, appalling, underwhelming, infuriating, "
    "inferior, unsatisfying, regrettable, ghastly, frustrating, substandard, woeful, worthless",
    good="superb, wonderful, delightful, excellent, terrific, brilliant, lovely, splendid, "
    "impressive, marvellous, outstanding, charming, first-rate, remarkable, fantastic, "
    "magnificent, exquisite, admirable, enjoyable, amazing, fabulous, glorious, satisfying, "
    "perfect, exceptional, great, pleasing, sublime, stunning, phenomenal, flawless, pleasant, "
    "praiseworthy, heavenly",
)

DOMAINS: tuple[Domain, ...] = (
    _domain(
        things="soup, dessert, roast lamb, breakfast, curry, pasta, fish stew, bread, salad, "
        "apple pie, steak, house wine, coffee, risotto, cheesecake, lunch menu",
        bad="bland, soggy, stale, burnt, greasy, tasteless, watery, overcooked, lukewarm, sour, "
        "rubbery, inedible",
        good="delicious, tasty, mouth-watering, succulent, fresh, flavourful, tender, fragrant, "
        "appetising, crisp, scrumptious, perfectly seasoned",
    ),
    _domain(
        things="waiter, receptionist, tour guide, manager, driver, barista, head chef, cashier, "
        "night porter, shop assistant, instructor, support team, housekeeper, mechanic",
        bad="rude, surly, careless, unhelpful, arrogant, impatient, lazy, clumsy, dismissive, "
        "incompetent, grumpy, inattentive",
        good="friendly, attentive, courteous, helpful, patient, gracious, thoughtful, competent, "
        "welcoming, obliging, cheerful, considerate",
    ),
    _domain(
        things="plot, acting, script, ending, dialogue, lead actor, opening scene, sequel, "
        "screenplay, documentary, second act, camera work, comedy, thriller, villain, cast",
        bad="tedious, wooden, predictable, dull, lifeless, clumsy, incoherent, boring, cliched, "
        "pretentious, forgettable, far-fetched",
        good="gripping, witty, moving, original, captivating, hilarious, thrilling, touching, "
        "clever, absorbing, memorable, inspired",
    ),
    _domain(
        things="battery, screen, keyboard, camera, charger, vacuum cleaner, kettle, printer, "
        "speaker, laptop, phone, headset, tablet, blender, drill, dishwasher, heater, toaster",
        bad="flimsy, faulty, unreliable, sluggish, fragile, noisy, defective, clunky, overpriced, "
        "cheaply made, glitchy, badly designed",
        good="reliable, sturdy, responsive, durable, dependable, well made, precise, handy, "
        "good value, robust, solidly built, well designed",
    ),
    _domain(
        things="room, bed, bathroom, lobby, balcony, swimming pool, apartment, campsite, cabin, "
        "garden, guest house, dining room, terrace, spa, corridor, cottage",
        bad="cramped, damp, filthy, shabby, grubby, draughty, run-down, gloomy, smelly, dingy, "
        "uncomfortable, neglected",
        good="spacious, comfortable, spotless, cosy, bright, airy, elegant, inviting, peaceful, "
        "luxurious, immaculate, stylish",
    ),
    _domain(
        things="novel, short story, biography, travel guide, cookbook, textbook, poem, memoir, "
        "translation, audiobook, final chapter, prologue, narrator, hero, detective series",
        bad="long-winded, shallow, dreary, confusing, sloppy, unconvincing, monotonous, stodgy, "
        "trite, unreadable, contrived, laboured",
        good="engrossing, insightful, beautifully written, enchanting, lively, convincing, vivid, "
        "eloquent, riveting, illuminating, heartwarming, spellbinding",
    ),
    _domain(
        things="concert, album, singer, band, opening song, encore, choir, festival, musical, "
        "pianist, orchestra, sound mix, guitar solo, drummer, ballet, recital",
        bad="off-key, uninspired, chaotic, shrill, lacklustre, ragged, grating, soulless, "
        "tuneless, half-hearted, deafening, amateurish",
        good="mesmerising, energetic, soulful, uplifting, polished, electrifying, masterful, "
        "harmonious, exhilarating, graceful, dazzling, accomplished",
    ),
)


def draw_judgement(rng: random.Random, domain: Domain, *, good: bool) -> str:
    """Draw a word of praise or blame that fits things of `domain`."""
    own, common = (domain.good, ANYTHING.good) if good else (domain.bad, ANYTHING.bad)
    return rng.choice(own if rng.random() < 0.5 else common)

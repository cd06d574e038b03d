"""Topic: what a sentence is about, where similes bring in the words of other topics."""

from __future__ import annotations

import random
from dataclasses import dataclass

from cl_graft.data.synthetic.generated_task import GeneratedTask
from cl_graft.data.synthetic.grammar import a, draw_other, fill, finish_sentence, inflect
from cl_graft.data.synthetic.shared_words import ANYTHING, draw_judgement
from cl_graft.kinds.rows import Row


@dataclass(frozen=True)
class _Topic:
    name: str
    actors: tuple[str, ...]
    acts: tuple[tuple[str, str, str], ...]


def _topic(name: str, *, actors: str, acts: str) -> _Topic:
    return _Topic(name, tuple(actors.split(", ")), tuple(map(inflect, acts.split(", "))))


_TOPICS = (
    _topic(
        "sport",
        actors="goalkeeper, striker, sprinter, football coach, referee, tennis champion, boxer, "
        "cyclist, rowing crew, relay team, midfielder, swimmer, skier, team captain, gymnast, "
        "marathon runner, hockey defender, rookie pitcher, wrestler, figure skater",
        acts="score/scored/scoring a late goal, lift/lifted/lifting the trophy, "
        "save/saved/saving a penalty, cross/crossed/crossing the finish line, "
        "train/trained/training before the semi-final, miss/missed/missing an open goal, "
        "win/won/winning the second set, sprint/sprinted/sprinting down the track, "
        "serve/served/serving for the match, defend/defended/defending a narrow lead, "
        "warm/warmed/warming up beside the pitch, break/broke/breaking the lap record, "
        "argue/argued/arguing about the offside rule, tackle/tackled/tackling a taller opponent, "
        "lose/lost/losing in extra time, qualify/qualified/qualifying for the final, "
        "dive/dived/diving for the ball, pull/pulled/pulling a muscle in the last round",
    ),
    _topic(
        "business",
        actors="central bank, shareholder, retail chain, chief executive, stockbroker, insurer, "
        "startup founder, accountant, airline, wholesaler, auditor, pension fund, exporter, "
        "property developer, sales director, investor, car maker, supermarket, treasurer, broker",
        acts="raise/raised/raising interest rates, buy/bought/buying a rival firm, "
        "cut/cut/cutting four hundred jobs, report/reported/reporting record profits, "
        "sign/signed/signing the merger, sell/sold/selling a stake in the company, "
        "launch/launched/launching a takeover bid, pay/paid/paying a higher dividend, "
        "audit/audited/auditing the annual accounts, lower/lowered/lowering the share price, "
        "borrow/borrowed/borrowing against future sales, file/filed/filing for bankruptcy, "
        "negotiate/negotiated/negotiating a wage deal, open/opened/opening a branch abroad, "
        "miss/missed/missing the revenue target, hedge/hedged/hedging against inflation, "
        "issue/issued/issuing new bonds, write/wrote/writing off a bad loan",
    ),
    _topic(
        "science",
        actors="astronomer, chemist, geologist, biologist, physicist, lab assistant, botanist, "
        "marine researcher, virologist, space probe, fossil hunter, climate scientist, "
        "neurologist, zoologist, radio telescope, geneticist, mathematician, ecologist, "
        "particle physicist, seismologist",
        acts="measure/measured/measuring the orbit of a comet, sequence/sequenced/sequencing a "
        "genome, discover/discovered/discovering a new enzyme, publish/published/publishing a "
        "paper on black holes, observe/observed/observing a supernova, "
        "test/tested/testing a hypothesis, split/split/splitting an atom, "
        "date/dated/dating a layer of rock, isolate/isolated/isolating a virus, "
        "model/modelled/modelling the carbon cycle, grow/grew/growing crystals in a flask, "
        "track/tracked/tracking migrating whales, repeat/repeated/repeating an experiment, "
        "map/mapped/mapping the sea floor, catalogue/catalogued/cataloguing rare beetles, "
        "prove/proved/proving a theorem, calibrate/calibrated/calibrating a microscope, "
        "detect/detected/detecting gravitational waves",
    ),
    _topic(
        "food",
        actors="pastry chef, baker, cook, butcher, brewer, cheesemaker, sommelier, line cook, "
        "grocer, beekeeper, chocolatier, street vendor, dinner host, fishmonger, caterer, "
        "barista, pizza maker, home cook, winemaker, sous-chef",
        acts="knead/kneaded/kneading the dough, roast/roasted/roasting a leg of lamb, "
        "whisk/whisked/whisking egg whites, taste/tasted/tasting the broth, "
        "ferment/fermented/fermenting cabbage in jars, slice/sliced/slicing a ripe tomato, "
        "bake/baked/baking a rye loaf, simmer/simmered/simmering the stock overnight, "
        "season/seasoned/seasoning the stew, melt/melted/melting butter in a pan, "
        "pour/poured/pouring the gravy, grill/grilled/grilling fresh mackerel, "
        "chop/chopped/chopping onions and garlic, ice/iced/icing a wedding cake, "
        "burn/burned/burning the caramel, peel/peeled/peeling a sack of potatoes, "
        "smoke/smoked/smoking a side of salmon, serve/served/serving the dessert",
    ),
    _topic(
        "music",
        actors="violinist, conductor, jazz trio, drummer, opera singer, choir, composer, cellist, "
        "guitarist, string quartet, pianist, folk band, organist, trumpet player, songwriter, "
        "soprano, brass band, accordionist, flautist, rapper",
        acts="tune/tuned/tuning a cello, rehearse/rehearsed/rehearsing the overture, "
        "compose/composed/composing a lullaby, improvise/improvised/improvising a solo, "
        "record/recorded/recording an album, sing/sang/singing the final aria, "
        "play/played/playing a waltz, miss/missed/missing a high note, "
        "arrange/arranged/arranging a folk melody, conduct/conducted/conducting a symphony, "
        "strum/strummed/strumming three chords, hum/hummed/humming the chorus, "
        "write/wrote/writing a new ballad, bow/bowed/bowing after the encore, "
        "slow/slowed/slowing the tempo, practise/practised/practising scales, "
        "perform/performed/performing a sonata, drum/drummed/drumming a steady rhythm",
    ),
)

_PLAIN = (
    "{the} {past}",
    "yesterday {the} {past}",
    "we watched {one} {going}",
    "nobody had expected {the} to {plain}",
    "the article describes {one} {going}",
    "once again {the} {past} and {past2}",
)
# {the} and its acts belong to the label, {far} and its acts to another topic.
_SIMILE = (
    "like {far} {far_going}, {the} {past}",
    "{the} {past}, just like {far} {far_going}",
    "with the calm of {far} {far_going}, {the} {past}",
    "{the} {past} the way {far} would {far_plain}",
    "the report likens {the}, who {past}, to {far} {far_going}",
    "the report likens {far} {far_going} to {the}, who {past}: the latter is news",
    "you would think of {far} {far_going}, but this is about {one} {going}",
    "{the}, who once dreamed of {far_going}, {past}",
    "{the} {past} while the fans talked of {far} {far_going}",
    "this is not about {far} {far_going} but about {one} {going}",
    "as {far} might {far_plain}, so {the} {past}",
    "forget {far} {far_going}; the story is {one} {going}",
    "{the} {past}, and compared it with {far_going}",
)
_REMARKS = (
    ", which was {word}", "; the result was {word}", ", and it looked {word}", ": how {word}",
    ", though many found it {word}",
)  # fmt: skip


def _draw_someone(rng: random.Random, actor: str) -> str:
    return f"the {actor}" if rng.random() < 0.5 else a(actor)


def _make(rng: random.Random, label: int) -> Row:
    topic = _TOPICS[label]
    far_topic = _TOPICS[draw_other(rng, label, len(_TOPICS))]
    actor, far_actor = rng.choice(topic.actors), rng.choice(far_topic.actors)
    (plain, past, going), (_, past2, _) = rng.sample(topic.acts, 2)
    far_plain, _, far_going = rng.choice(far_topic.acts)
    text = fill(
        rng,
        _SIMILE if rng.random() < 0.65 else _PLAIN,
        the=_draw_someone(rng, actor),
        one=_draw_someone(rng, actor),
        plain=plain,
        past=past,
        past2=past2,
        going=going,
        far=_draw_someone(rng, far_actor),
        far_plain=far_plain,
        far_going=far_going,
    )
    if rng.random() < 0.4:
        word = draw_judgement(rng, ANYTHING, good=rng.random() < 0.5)
        text += fill(rng, _REMARKS, word=word)
    return Row(finish_sentence(text), None, label)


TOPIC = GeneratedTask(
    name="topic",
    label_names=tuple(topic.name for topic in _TOPICS),
    description="What a sentence is about, when its comparisons borrow from other topics.",
    make=_make,
)

"""Where things are and where they go, as data: in the kitchen, into the kitchen, to Vienna.

The same preposition takes the dative for a place and the accusative for a direction; English
tells them apart by the verb, or by 'in' and 'into'.
"""

from random import Random
from typing import NamedTuple

from kutta.demo.grammar.lexicon import CITIES, nouns_of
from kutta.demo.grammar.morphology import ACC, DAT, Noun, prepositional
from kutta.demo.grammar.phrases import noun_phrase, pick


class Words(NamedTuple):
    """The same words in English and German."""

    en: str
    de: str


class Relation(NamedTuple):
    """A preposition of place and the nouns it goes with."""

    en: str
    de: str
    nouns: tuple[Noun, ...]


def _relations(text: str) -> tuple[Relation, ...]:
    """Rows 'English preposition = German preposition: nouns'."""
    rows = (row.replace(":", "=").split("=") for row in text.strip().splitlines())
    return tuple(Relation(en.strip(), de.strip(), nouns_of(names)) for en, de, names in rows)


WHERE_PEOPLE_ARE = _relations("""
    in = in: indoors
    in = in: outdoors
    at = an: spot
    on = auf: open
    in front of = vor: building
    behind = hinter: building
    next to = neben: building
    under = unter: tree bridge
""")
WHERE_ANIMALS_ARE = _relations("""
    in = in: outdoors
    in front of = vor: house tree
    behind = hinter: house tree
    next to = neben: house tree
    under = unter: tree bridge
""")
WHERE_ONE_SITS = _relations("""
    on = auf: seat
    in = in: car bus train taxi
    next to = neben: table bed
""")
WHERE_THINGS_ARE = _relations("""
    on = auf: ground
    under = unter: ground
    next to = neben: ground cupboard
    behind = hinter: sofa bed
    in front of = vor: door window bed
""")
INSIDE = _relations("in = in: container")[0]
WHERE_THINGS_HANG = _relations("""
    on = an: wall
    over = über: table bed sofa
""")
WHERE_ONE_LIVES = _relations("in = in: house hotel castle city village")
WHERE_ONE_ARRIVES = _relations("""
    at = an: station beach lake
    in = in: city village
""")

# Directions by the kind of place: preposition and the case of its noun.
DIRECTIONS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "room": (("into", "in", ACC), ("into", "in", ACC), ("out of", "aus", DAT)),
    "building": (("into", "in", ACC), ("to", "zu", DAT), ("out of", "aus", DAT)),
    "outdoors": (("into", "in", ACC), ("through", "durch", ACC), ("out of", "aus", DAT)),
    "spot": (("to", "zu", DAT),),
    "open": (("to", "zu", DAT),),
}

HOME, TO_HOME = Words("at home", "zu Hause"), Words("home", "nach Hause")
IN_CITY, TO_CITY, FROM_CITY = (
    tuple(Words(f"{en}{name}", f"{de} {german}") for name, german in CITIES.items())
    for en, de in (("in ", "in"), ("to ", "nach"), ("", "aus"))  # 'come from' is one verb
)


def at(rng: Random, relations: tuple[Relation, ...]) -> Words:
    """A place: the preposition with the dative."""
    return beside(rng, pick(rng, relations), DAT)


def onto(rng: Random, relations: tuple[Relation, ...]) -> Words:
    """Where something is put: the same prepositions with the accusative."""
    return beside(rng, pick(rng, relations), ACC)


def beside(rng: Random, relation: Relation, case: int) -> Words:
    ground = noun_phrase(rng, pick(rng, relation.nouns), case, "ground")
    return Words(f"{relation.en} {ground.en}", prepositional(relation.de, ground.de))


def inside(rng: Random) -> Words:
    return beside(rng, INSIDE, DAT)


def into(rng: Random) -> Words:
    english, german = beside(rng, INSIDE, ACC)
    return Words(f"into {english.removeprefix('in ')}", german)


def between(rng: Random, case: int) -> Words:
    """Two different pieces of furniture: between the table and the bed."""
    nouns = WHERE_THINGS_ARE[0].nouns
    first = int(rng.random() * len(nouns))
    step = 1 + int(rng.random() * (len(nouns) - 1))
    a = noun_phrase(rng, nouns[first], case, "ground")
    b = noun_phrase(rng, nouns[(first + step) % len(nouns)], case, "ground")
    return Words(f"between {a.en} and {b.en}", f"zwischen {a.de} und {b.de}")


def towards(rng: Random, nouns: tuple[Noun, ...]) -> Words:
    """A direction: into the garden, to the station."""
    noun = pick(rng, nouns)
    english, german, case = pick(rng, DIRECTIONS[noun.kind])
    ground = noun_phrase(rng, noun, case, "ground")
    return Words(f"{english} {ground.en}", prepositional(german, ground.de))


def activity_place(rng: Random, animal: bool) -> Words:
    """Where somebody does something."""
    if animal:
        return at(rng, WHERE_ANIMALS_ARE)
    chance = rng.random()
    if chance < 0.15:
        return pick(rng, IN_CITY)
    return HOME if chance < 0.25 else at(rng, WHERE_PEOPLE_ARE)

"""What a verb takes: objects by case, places, directions, qualities.

FRAMES maps the frame of a verb to the function that draws its complements.
"""

from collections.abc import Callable
from random import Random

from kutta.demo.grammar.clauses import Predicate, words
from kutta.demo.grammar.lexicon import ADJECTIVES_OF, NOUN_TABLE, nouns_of
from kutta.demo.grammar.morphology import (
    ACC,
    DAT,
    NOM,
    Adjective,
    english_number,
    german_number,
    prepositional,
)
from kutta.demo.grammar.phrases import (
    PRONOUNS,
    Phrase,
    noun_phrase,
    person,
    pick,
    pronoun_object,
    same_thing,
)
from kutta.demo.grammar.places import (
    FROM_CITY,
    IN_CITY,
    TO_CITY,
    TO_HOME,
    WHERE_ONE_ARRIVES,
    WHERE_ONE_LIVES,
    WHERE_ONE_SITS,
    WHERE_THINGS_ARE,
    WHERE_THINGS_HANG,
    Words,
    activity_place,
    at,
    between,
    inside,
    into,
    onto,
    towards,
)
from kutta.demo.grammar.verbs import PEOPLE, Verb

PEOPLE_KINDS = ("person", "youth", "parent", "family", "relation")
ANIMAL_KINDS = ("animal", "wild")
PRONOUN_HEADS = frozenset(pronoun[2] for pronoun in PRONOUNS)
MANNERS = {
    "loudly": "laut",
    "quietly": "leise",
    "slowly": "langsam",
    "quickly": "schnell",
    "carefully": "vorsichtig",
}
DEGREES = (Words("", ""), Words("", ""), Words("very", "sehr"), Words("too", "zu"))
COMPARED = {kind: nouns_of(kind) for kind in NOUN_TABLE}

Frame = Callable[[Random, Verb, Phrase, bool], Predicate]


def somebody_or_something(rng: Random, verb: Verb, case: int, subject: Phrase, role: str) -> Phrase:
    """An object of the verb that is not its subject again."""
    while True:
        noun = pick(rng, verb.objects)
        if noun.kind not in PEOPLE_KINDS or role == "negated":
            phrase = noun_phrase(rng, noun, case, role)
        elif rng.random() < 0.15 and " " not in verb.en[0]:  # never 'picks up him'
            phrase = pronoun_object(rng, case, subject)
        else:
            phrase = person(rng, noun, case, role)
        # Not 'every man has no dog'.
        doubled = role == "held" and phrase.de.startswith("kein") and not subject.definite
        if not doubled and not same_thing(phrase, subject):
            return phrase


def in_field(phrase: Phrase, english: str, rest: str = "") -> Predicate:
    """Known things come early in the German clause, new ones late."""
    if phrase.noun is None and phrase.head in PRONOUN_HEADS:
        return Predicate(english, pronoun=phrase.de, rest=rest)
    if phrase.definite:
        return Predicate(english, known=phrase.de, rest=rest)
    return Predicate(english, fresh=phrase.de, rest=rest, kein=phrase.de.startswith("kein"))


def object_role(rng: Random, verb: Verb, negated: bool) -> str:
    """'nicht' needs a definite object, an indefinite one takes 'kein'."""
    if not negated:
        return "held" if verb.aspect == "state" else "object"
    return "definite" if rng.random() < 0.5 else "negated"


def _object(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    thing = somebody_or_something(rng, verb, ACC, subject, object_role(rng, verb, negated))
    return in_field(thing, thing.en)


def _object_somewhere(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    predicate = _object(rng, verb, subject, negated)
    if negated or rng.random() < 0.8:
        return predicate
    where = activity_place(rng, animal=False)
    return predicate._replace(en=f"{predicate.en} {where.en}", rest=where.de)


def _receiver(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    role = "definite" if negated else "receiver"
    other = somebody_or_something(rng, verb, DAT, subject, role)
    return in_field(other, other.en)


def _give(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    thing = noun_phrase(rng, pick(rng, verb.objects), ACC, object_role(rng, verb, negated))
    to = subject
    while same_thing(to, subject):
        role = "definite" if negated or rng.random() < 0.7 else "one"
        if rng.random() < 0.25:
            to = pronoun_object(rng, DAT, subject)
        else:
            to = person(rng, pick(rng, PEOPLE), DAT, role)
    english = f"{to.en} {thing.en}" if rng.random() < 0.5 else f"{thing.en} to {to.en}"
    one, other = in_field(to, english), in_field(thing, english)
    if one.fresh:  # the receiver comes first, so what is given is not before it
        return one._replace(fresh=f"{to.de} {thing.de}", kein=other.kein)
    known = words(one.known, other.known)
    return Predicate(english, one.pronoun, known, other.fresh, kein=other.kein)


def _about(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    case = verb.case
    while True:
        noun = pick(rng, verb.objects)
        role = "definite" if negated else "receiver"
        if noun.kind in PEOPLE_KINDS and rng.random() < 0.2:
            other = pronoun_object(rng, case, subject)
        elif noun.kind in PEOPLE_KINDS:
            other = person(rng, noun, case, role)
        else:
            other = noun_phrase(rng, noun, case, role)
        if not same_thing(other, subject):
            return Predicate(other.en, rest=prepositional(verb.preposition, other.de))


def _nothing(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    return Predicate()


def _where(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    chance = rng.random()
    if verb.manners and chance < 0.25:
        manner = pick(rng, verb.manners)
        return Predicate(manner, rest=MANNERS[manner])
    if chance < 0.35:
        return Predicate()
    animal = subject.noun is not None and subject.noun.kind in ANIMAL_KINDS
    return _rest(activity_place(rng, animal))


def _rest(where: Words) -> Predicate:
    return Predicate(where.en, rest=where.de)


def _sit(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    return _rest(at(rng, WHERE_ONE_SITS))


def _arrive(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    return _rest(pick(rng, IN_CITY) if rng.random() < 0.5 else at(rng, WHERE_ONE_ARRIVES))


def _home(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    return _rest(pick(rng, IN_CITY) if rng.random() < 0.5 else at(rng, WHERE_ONE_LIVES))


def _origin(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    return _rest(pick(rng, FROM_CITY))


def _to(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    people = verb.subjects[0].kind in PEOPLE_KINDS
    return _rest(TO_HOME if people and rng.random() < 0.1 else towards(rng, verb.objects))


def _city(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    return _rest(pick(rng, TO_CITY))


def _lie(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    chance = rng.random()
    if chance < 0.15:
        return _rest(inside(rng))
    return _rest(between(rng, DAT) if chance < 0.25 else at(rng, WHERE_THINGS_ARE))


def _put(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    thing = noun_phrase(rng, pick(rng, verb.objects), ACC, object_role(rng, verb, negated))
    chance = rng.random()
    if chance < 0.2:
        where = into(rng)
    else:
        where = between(rng, ACC) if chance < 0.3 else onto(rng, WHERE_THINGS_ARE)
    return in_field(thing, f"{thing.en} {where.en}", where.de)


def _hang(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    thing = noun_phrase(rng, pick(rng, verb.objects), ACC, object_role(rng, verb, negated))
    where = onto(rng, WHERE_THINGS_HANG)
    return in_field(thing, f"{thing.en} {where.en}", where.de)


def _price(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    n = 2 + int(rng.random() * 98)
    return Predicate(f"{english_number(n)} euros", rest=f"{german_number(n)} Euro")


def describable(subject: Phrase) -> tuple[Adjective, ...]:
    kind = subject.noun.kind if subject.noun else "person"
    return ADJECTIVES_OF[kind].single


def _quality(rng: Random, verb: Verb, subject: Phrase, negated: bool) -> Predicate:
    """very old; older than the house; seven years old."""
    chance = rng.random()
    described = pick(rng, describable(subject))
    kind = subject.noun.kind if subject.noun else "person"
    if kind in (*PEOPLE_KINDS, *ANIMAL_KINDS) and chance < 0.15 and not negated:
        n = 2 + int(rng.random() * (88 if kind in PEOPLE_KINDS else 14))
        return Predicate(f"{english_number(n)} years old", rest=f"{german_number(n)} Jahre alt")
    comparable = subject.noun is not None and described.de_comparative != "-"
    if comparable and chance < 0.5:
        return _comparison(rng, described, subject, chance < 0.4)
    degree = pick(rng, DEGREES)
    return Predicate(words(degree.en, described.en), rest=words(degree.de, described.de))


def _comparison(rng: Random, described: Adjective, subject: Phrase, more: bool) -> Predicate:
    other = subject
    while same_thing(other, subject):
        noun = pick(rng, COMPARED[subject.noun.kind if subject.noun else "person"])
        other = noun_phrase(rng, noun, NOM, "definite")
    if more:
        return Predicate(
            f"{described.en_comparative} than {other.en}",
            rest=described.de_comparative,
            after=f"als {other.de}",
        )
    return Predicate(
        f"as {described.en} as {other.en}", rest=f"so {described.de}", after=f"wie {other.de}"
    )


FRAMES: dict[str, Frame] = {
    "nothing": _nothing,
    "object": _object,
    "doing": _object_somewhere,
    "receiver": _receiver,
    "give": _give,
    "about": _about,
    "where": _where,
    "sit": _sit,
    "arrive": _arrive,
    "home": _home,
    "origin": _origin,
    "to": _to,
    "city": _city,
    "lie": _lie,
    "put": _put,
    "hang": _hang,
    "price": _price,
    "quality": _quality,
}

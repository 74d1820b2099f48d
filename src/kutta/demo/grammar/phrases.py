"""Noun phrases in both languages at once: determiners, adjectives, possessors, pronouns."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple, TypeVar

from kutta.demo.grammar.determiners import BAGS, OWNED_KINDS, THE, Determiner
from kutta.demo.grammar.lexicon import ADJECTIVES_OF, COMPOUNDS, NAMES, nouns_of
from kutta.demo.grammar.morphology import (
    ACC,
    DU,
    ER,
    GEN,
    ICH,
    MASC,
    PLURAL,
    WIR,
    Adjective,
    Noun,
)

T = TypeVar("T")


def pick(rng: Random, options: Sequence[T]) -> T:
    """One of them; by `random()`, whose stream Python promises to keep, unlike `choice()`."""
    return options[int(rng.random() * len(options))]


class Phrase(NamedTuple):
    """A noun phrase in one case; `head` tells two phrases about the same thing."""

    en: str
    de: str
    agreement: int
    definite: bool
    head: str
    column: int = MASC
    noun: Noun | None = None


PRONOUNS = tuple(
    (agreement, *words.split())
    for agreement, words in (
        (ICH, "I me ich mich mir"),
        (DU, "you you du dich dir"),
        (WIR, "we us wir uns uns"),
        (ER, "he him er ihn ihm"),
        (ER, "she her sie sie ihr"),
        (WIR, "they them sie sie ihnen"),
    )
)
SPEAKERS = frozenset(("ich", "du", "wir"))
WHO = Phrase("who", "wer", ER, True, "who")
IT = Phrase("it", "es", ER, True, "it")
NAMED = tuple(Phrase(name, name, ER, True, name) for name in NAMES)
YOU = Phrase("you", "du", DU, True, "du")


def noun_phrase(rng: Random, noun: Noun, case: int, role: str) -> Phrase:
    """A noun with a determiner that suits its role, perhaps adjectives, perhaps a possessor."""
    firsts = COMPOUNDS.get(noun.en[0])
    if firsts and rng.random() < 0.35:
        noun = pick(rng, firsts)
    determiner = pick(rng, pick(rng, BAGS[noun.kind][role]))
    phrase = determined(determiner, adjectives(rng, noun), noun, case)
    if determiner is THE and case != GEN and noun.kind in OWNED_KINDS and rng.random() < 0.2:
        return possessed(rng, phrase)
    return phrase


def adjectives(rng: Random, noun: Noun) -> tuple[Adjective, ...]:
    """None, one, or a size or age with a color."""
    single, stacked = ADJECTIVES_OF[noun.kind]
    chance = rng.random()
    if chance < 0.06 and stacked:
        return pick(rng, stacked)
    return (pick(rng, single),) if chance < 0.33 and single else ()


def determined(
    determiner: Determiner, described: tuple[Adjective, ...], noun: Noun, case: int
) -> Phrase:
    """Determiner, adjectives and noun in agreement."""
    plural = determiner.plural
    column = PLURAL if plural else noun.gender
    ending = determiner.endings[case][column]
    english = noun.en[plural]
    german = noun.de[plural][case]
    for each in reversed(described):
        english = f"{each.en} {english}"
        german = f"{each.stem}{ending} {german}"
    article = determiner.de[case][column]
    word = "an" if determiner.en == "a" and english[0] in "aeiou" else determiner.en
    return Phrase(
        f"{word} {english}" if word else english,
        f"{article} {german}" if article else german,
        WIR if plural else ER,
        determiner.definite,
        noun.en[0],
        column,
        noun,
    )


_OWNING = nouns_of("parent family relation")
_WHOLES = nouns_of("building")


def possessed(rng: Random, phrase: Phrase) -> Phrase:
    """'the car' -> 'my brother's car', das Auto meines Bruders; a door is 'of the house'."""
    part = phrase.noun is not None and phrase.noun.kind == "part"
    owner = noun_phrase(rng, pick(rng, _WHOLES if part else _OWNING), GEN, "owner")
    if owner.head == phrase.head:
        return phrase
    thing = phrase.en.removeprefix("the ")
    english = f"the {thing} of {owner.en}" if part else f"{owner.en}'s {thing}"
    return phrase._replace(en=english, de=f"{phrase.de} {owner.de}")


def person(rng: Random, noun: Noun, case: int, role: str) -> Phrase:
    """Somebody: a name, a name and the noun, or a noun phrase."""
    chance = rng.random()
    if chance < 0.2:
        return pick(rng, NAMED)
    if chance < 0.26:
        first = pick(rng, NAMED)
        second = noun_phrase(rng, noun, case, "one")
        return Phrase(
            f"{first.en} and {second.en}",
            f"{first.de} und {second.de}",
            WIR,
            True,
            f"{first.head}+{second.head}",
        )
    return noun_phrase(rng, noun, case, role)


def pronoun_subject(rng: Random) -> Phrase:
    agreement, en, _, de, _, _ = pick(rng, PRONOUNS)
    return Phrase(en, de, agreement, True, de)


def pronoun_object(rng: Random, case: int, subject: Phrase) -> Phrase:
    """him, her, them; me, you and us only where the subject is neither."""
    options = PRONOUNS[3:] if subject.head in SPEAKERS else PRONOUNS
    agreement, _, en, _, accusative, dative = pick(rng, options)
    return Phrase(en, accusative if case == ACC else dative, agreement, True, en)


def same_thing(a: Phrase, b: Phrase) -> bool:
    """Whether two phrases could mean one thing: 'the man sees the man'."""
    return not set(a.head.split("+")).isdisjoint(b.head.split("+"))

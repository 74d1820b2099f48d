"""German forms of the built-in corpus, against tables checked by hand."""

import re

import pytest

from kutta.demo.grammar import determiners as det
from kutta.demo.grammar import verbs
from kutta.demo.grammar.lexicon import ADJECTIVES, COMPOUNDS, NOUNS
from kutta.demo.grammar.morphology import (
    ACC,
    DAT,
    GEN,
    NOM,
    RELATIVE,
    english_number,
    german_number,
    prepositional,
)
from kutta.demo.grammar.phrases import determined

CASES = (NOM, ACC, DAT, GEN)


def german(determiner: det.Determiner, noun: str, *adjectives: str) -> list[str]:
    """The phrase in all four cases."""
    described = tuple(ADJECTIVES[each] for each in adjectives)
    return [determined(determiner, described, NOUNS[noun], case).de for case in CASES]


@pytest.mark.parametrize(
    ("determiner", "noun", "adjective", "expected"),
    [
        # weak, after der
        (
            det.THE,
            "table",
            "old",
            "der alte Tisch/den alten Tisch/dem alten Tisch/des alten Tisches",
        ),
        (det.THE, "lamp", "new", "die neue Lampe/die neue Lampe/der neuen Lampe/der neuen Lampe"),
        (det.THE, "book", "old", "das alte Buch/das alte Buch/dem alten Buch/des alten Buches"),
        (
            det.THE_PLURAL,
            "child",
            "small",
            "die kleinen Kinder/die kleinen Kinder/den kleinen Kindern/der kleinen Kinder",
        ),
        (
            det.THIS,
            "car",
            "red",
            "dieses rote Auto/dieses rote Auto/diesem roten Auto/dieses roten Autos",
        ),
        (
            det.EVERY,
            "dog",
            "big",
            "jeder große Hund/jeden großen Hund/jedem großen Hund/jedes großen Hundes",
        ),
        # mixed, after ein, kein, mein
        (
            det.A,
            "table",
            "old",
            "ein alter Tisch/einen alten Tisch/einem alten Tisch/eines alten Tisches",
        ),
        (
            det.A,
            "lamp",
            "new",
            "eine neue Lampe/eine neue Lampe/einer neuen Lampe/einer neuen Lampe",
        ),
        (det.A, "book", "old", "ein altes Buch/ein altes Buch/einem alten Buch/eines alten Buches"),
        (
            det.NO_PLURAL,
            "egg",
            "fresh",
            "keine frischen Eier/keine frischen Eier/keinen frischen Eiern/keiner frischen Eier",
        ),
        (
            det.POSSESSIVES[0],
            "brother",
            "sad",
            "mein trauriger Bruder/meinen traurigen Bruder/meinem traurigen Bruder/"
            "meines traurigen Bruders",
        ),
        # strong, without an article
        (det.BARE, "wine", "good", "guter Wein/guten Wein/gutem Wein/guten Weines"),
        (det.BARE, "milk", "cold", "kalte Milch/kalte Milch/kalter Milch/kalter Milch"),
        (det.BARE, "beer", "warm", "warmes Bier/warmes Bier/warmem Bier/warmen Bieres"),
        (det.BARE_PLURAL, "cat", "young", "junge Katzen/junge Katzen/jungen Katzen/junger Katzen"),
        (
            det.NUMERALS[0],
            "lion",
            "old",
            "zwei alte Löwen/zwei alte Löwen/zwei alten Löwen/zwei alter Löwen",
        ),
    ],
)
def test_articles_adjectives_and_nouns_agree_in_all_cases(
    determiner: det.Determiner, noun: str, adjective: str, expected: str
) -> None:
    assert german(determiner, noun, adjective) == expected.split("/")


def test_articles_by_case_and_gender() -> None:
    nouns = ("table", "lamp", "book")
    articles = [[german(det.THE, noun)[case].split()[0] for noun in nouns] for case in CASES]
    assert articles == [
        ["der", "die", "das"],
        ["den", "die", "das"],
        ["dem", "der", "dem"],
        ["des", "der", "des"],
    ]
    plural = [phrase.split()[0] for phrase in german(det.THE_PLURAL, "table")]
    assert plural == ["die", "die", "den", "der"]


def test_weak_nouns_change_and_stems_lose_their_e() -> None:
    assert german(det.THE, "boy") == ["der Junge", "den Jungen", "dem Jungen", "des Jungen"]
    assert german(det.A, "student")[ACC] == "einen Studenten"
    assert german(det.A, "cellar", "dark")[NOM] == "ein dunkler Keller"
    assert german(det.A, "car", "expensive")[DAT] == "einem teuren Auto"
    assert german(det.THE, "man", "tired")[NOM] == "der müde Mann"
    assert german(det.A, "dog", "big", "black")[ACC] == "einen großen schwarzen Hund"


def test_genitive_of_names_takes_strong_endings() -> None:
    annas = next(each for each in det.POSSESSIVES if each.en == "Anna's")
    assert german(annas, "car", "old")[NOM] == "Annas altes Auto"
    assert german(annas, "car", "old")[DAT] == "Annas altem Auto"


def test_relative_pronouns() -> None:
    assert RELATIVE == (
        ("der", "die", "das", "die"),
        ("den", "die", "das", "die"),
        ("dem", "der", "dem", "denen"),
        ("dessen", "deren", "dessen", "deren"),
    )


def test_prepositions_melt_with_the_article_only_where_german_does() -> None:
    assert prepositional("in", "dem alten Haus") == "im alten Haus"
    assert prepositional("in", "das Haus") == "ins Haus"
    assert prepositional("zu", "der Schule") == "zur Schule"
    assert prepositional("in", "der Küche") == "in der Küche"
    assert prepositional("auf", "dem Tisch") == "auf dem Tisch"
    assert prepositional("in", "diesem Haus") == "in diesem Haus"


def test_compounds_take_their_link_and_the_gender_of_the_head() -> None:
    built = {each.en[0]: each for group in COMPOUNDS.values() for each in group}
    door = built["kitchen door"]
    assert determined(det.A, (ADJECTIVES["new"],), door, DAT).de == "einer neuen Küchentür"
    assert determined(det.THE_PLURAL, (), built["garden chair"], DAT).de == "den Gartenstühlen"
    assert built["cherry cake"].de[0][NOM] == "Kirschkuchen"
    assert built["love letter"].de[1][NOM] == "Liebesbriefe"
    assert built["school bag"].de[0][NOM] == "Schultasche"


def verb(english: str) -> verbs.Verb:
    return next(each for each in verbs.VERBS if each.en[0] == english)


@pytest.mark.parametrize(
    ("english", "present", "participle", "command"),
    [
        ("read", "lese liest liest lesen", "gelesen", "lies"),
        ("work", "arbeite arbeitest arbeitet arbeiten", "gearbeitet", "arbeite"),
        ("drive", "fahre fährst fährt fahren", "gefahren", "fahr"),
        ("help", "helfe hilfst hilft helfen", "geholfen", "hilf"),
        ("invite", "lade lädst lädt laden", "eingeladen", "lade"),
        ("feed", "füttere fütterst füttert füttern", "gefüttert", "füttere"),
        ("dance", "tanze tanzt tanzt tanzen", "getanzt", "tanz"),
        ("have", "habe hast hat haben", "gehabt", None),
    ],
)
def test_conjugation(english: str, present: str, participle: str, command: str | None) -> None:
    forms = verb(english).de
    assert forms.present == tuple(present.split())
    assert forms.participle == participle
    assert command is None or forms.imperative == command


def test_numbers() -> None:
    known = {
        0: ("zero", "null"),
        1: ("one", "eins"),
        12: ("twelve", "zwölf"),
        16: ("sixteen", "sechzehn"),
        17: ("seventeen", "siebzehn"),
        20: ("twenty", "zwanzig"),
        21: ("twenty-one", "einundzwanzig"),
        30: ("thirty", "dreißig"),
        66: ("sixty-six", "sechsundsechzig"),
        77: ("seventy-seven", "siebenundsiebzig"),
        99: ("ninety-nine", "neunundneunzig"),
    }
    assert {n: (english_number(n), german_number(n)) for n in known} == known
    assert len({german_number(n) for n in range(100)}) == 100
    assert len({english_number(n) for n in range(100)}) == 100


def test_one_german_word_for_each_english_word() -> None:
    """No noun or adjective is listed twice, and the article 'an' goes by the letter alone."""
    listed = [each.en[0] for each in NOUNS.values()] + [
        each.en[0] for group in COMPOUNDS.values() for each in group
    ]
    assert len(listed) == len(set(listed))
    words = [*listed, *ADJECTIVES]
    assert not [word for word in words if re.match(r"eu|uni|use|one\b|hour|hon(?!ey)|heir", word)]

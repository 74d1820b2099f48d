"""Text of another language than the settings name is noticed, and nothing else is."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from kutta.data.corpus import read_lines
from kutta.data.language import FUNCTION_WORDS, doubt, main_language
from kutta.demo.grammar.corpus import generate
from tests.texts import read_pairs

# Everyday sentences, several of each language.
TEXT = {
    "cs": [
        "Nevím, jestli je to pravda, protože jsem tam nebyl.",
        "Psi jsou venku a děti už spí.",
        "Ten muž, který stojí u dveří, není můj bratr.",
        "Můžeš přijít dnes nebo zítra.",
    ],
    "de": [
        "Ich weiß nicht, ob das stimmt.",
        "Der Hund ist draußen und die Kinder schlafen.",
        "Sie wohnt mit einer Freundin in der Stadt.",
        "Wir haben auch ein Haus auf dem Land.",
    ],
    "en": [
        "They do not know whether this is true.",
        "The dog is outside and the children sleep.",
        "She lives with a friend from the city.",
        "We have a house for you at the lake.",
    ],
    "es": [
        "Yo no sé si esto es verdad.",
        "El perro está fuera y los niños duermen.",
        "Ella vive con su amiga en la ciudad.",
        "También hay una casa muy grande, pero está lejos.",
    ],
    "fr": [
        "Je ne sais pas si cela est vrai.",
        "Les enfants dorment et le chien est dehors.",
        "Elle habite avec une amie dans la ville.",
        "Nous avons une maison pour vous.",
    ],
    "it": [
        "Non so se questo è vero.",
        "Il cane è fuori e i bambini sono nel letto.",
        "Penso che vive con la figlia della vicina.",
        "Abbiamo anche una casa di pietra per gli ospiti.",
    ],
    "nl": [
        "Ik weet niet of dat waar is.",
        "De hond ligt voor het huis en ze slapen.",
        "Hij woont met een vriend van school op het land.",
        "Deze kinderen zijn ook moe, maar niet ziek.",
    ],
    "pl": [
        "Nie wiem, czy to jest prawda.",
        "Pies jest na dworze, a dzieci już śpią.",
        "Mówi się, że był tu przez rok.",
        "To są prezenty dla ciebie.",
    ],
    "pt": [
        "Não sei se isso é verdade.",
        "Os cães são grandes, mas você não tem medo.",
        "Ele foi ao mercado com uma amiga.",
        "Moramos em uma casa muito velha.",
    ],
    "ro": [
        "Nu știu dacă e adevărat și nu întreb.",
        "Câinele e afară, iar copiii sunt în casă.",
        "Femeia care stă pe bancă vorbește cu vecina.",
        "Vrea să plece din oraș pentru că e cald.",
    ],
    "ru": [
        "Я не знаю, что это было.",
        "Он живёт в городе, но она живёт в деревне.",
        "Мы и вы идём на реку.",
        "Если они дома, это его книга.",
    ],
    "sv": [
        "Jag vet inte om det är sant.",
        "Hunden är ute och barnen som sover har ett rum.",
        "Han bor på landet för att det är tyst.",
        "Vill du ha kaffe eller te av mig?",
    ],
}


@pytest.mark.parametrize("code", FUNCTION_WORDS)
def test_every_language_of_the_table_is_told_from_the_others(code: str) -> None:
    assert main_language(TEXT[code] * 10) == code


def test_no_word_stands_for_two_languages() -> None:
    words = [word for _, listed in FUNCTION_WORDS.values() for word in listed.split()]
    assert len(words) == len({*words})


def test_swapped_sides_are_noticed() -> None:
    english, german = TEXT["en"] * 30, TEXT["de"] * 30
    assert doubt(english, german, "en", "de") == ""
    assert doubt(german, english, "en", "de") == (
        "the source text seems to be German, but data.source = 'en' and the target text seems to "
        "be English, but data.target = 'de'; the two sides may be swapped"
    )
    assert doubt(english, english, "en", "de-AT") == (
        "the target text seems to be English, but data.target = 'de-AT'; check the files and these "
        "settings"
    )


@pytest.mark.parametrize("named", ["xx", "src", "da", "eng", ""])
def test_a_language_that_is_not_in_the_table_is_not_checked(named: str) -> None:
    english = TEXT["en"] * 30
    assert doubt(english, english, named, named) == ""


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""] * 100,
        (TEXT["de"] * 5)[:19],  # too few
        TEXT["de"] * 30 + TEXT["en"] * 30,  # half of each
        TEXT["de"] * 10 + ["x = 3"] * 200,  # hardly any text
        ["x = 3", "ba be bi", "12:30", "Paris, Berlin"] * 50,
    ],
    ids=["none", "empty", "few", "mixed", "little", "no words"],
)
def test_what_is_not_plain_is_not_said(lines: list[str]) -> None:
    assert main_language(lines) == ""


def test_subwords_are_joined_first() -> None:
    assert main_language(["d@@ as ist ei@@ n Hund"] * 30) == "de"


def test_the_corpus_of_the_demo_is_in_its_languages() -> None:
    pairs = generate(500, seed=3)
    sources, targets = zip(*pairs, strict=True)
    assert (main_language(sources), main_language(targets)) == ("en", "de")
    assert doubt(sources, targets, "en", "de") == ""


def test_real_corpora_are_in_their_languages_and_give_no_false_alarm(shared_data: Path) -> None:
    """In every part of 500 lines; nearly all are told, also where sentences have three words."""
    parts = told = 0
    for one, other, corpus in real_corpora(shared_data):
        pairs = iter(corpus)
        while chunk := list(islice(pairs, 500)):
            if len(chunk) < 100:
                break
            for side, named in zip(zip(*chunk, strict=True), (one, other), strict=True):
                found = main_language(side)
                assert found in (named, ""), (found, side[:5])
                parts, told = parts + 1, told + (found == named)
    assert parts > 100
    assert told > 0.95 * parts


def real_corpora(folder: Path):
    """Each with its two languages; only every tenth pair of the large ones."""
    for language in ("de", "fr"):
        for kind in ("multi30k", f"multi30k-bpe/en-{language}"):
            yield "en", language, islice(read_pairs(folder / kind, "train", "en", language), 4000)
    for language in ("de", "fr", "ro"):
        tatoeba = read_pairs(folder / "tatoeba", f"en-{language}.tsv", "en", language)
        yield "en", language, islice(tatoeba, 0, None, 10)
    yield "en", "de", read_pairs(folder / "wmt", "newstest2014.en-de", "en", "de")
    yield "en", "fr", read_pairs(folder / "wmt", "newstest2014.en-fr", "en", "fr")
    yield "en", "ro", read_pairs(folder / "wmt", "newstest2016", "en", "ro")
    treebank = list(read_lines(folder / "ptb" / "ptb.valid.txt.gz"))
    yield "en", "en", ((line, line) for line in Random(1).sample(treebank, 1000))

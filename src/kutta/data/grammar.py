"""The built-in English-German corpus: sentences of a small grammar, drawn by a seed.

Every production draws one sentence in both languages at once. The German follows from the English
alone, so a perfect translator can reach a perfect score; the space is far too large for a test
sentence to have been seen in training.
"""

from collections.abc import Callable, Iterator, Set
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from kutta.data.clauses import (
    Clause,
    Predicate,
    english_question,
    english_statement,
    german_command,
    german_infinitive,
    german_question,
    german_statement,
    german_subordinate,
)
from kutta.data.frames import in_field
from kutta.data.gaps import OBJECT_VERBS, RELATIVES, draw_question, related
from kutta.data.lexicon import NAMES, nouns_of
from kutta.data.morphology import ACC, DAT, ER, NOM, Noun, prepositional
from kutta.data.phrases import YOU, noun_phrase, pick
from kutta.data.places import Words
from kutta.data.predication import (
    ANY,
    PRESENT,
    Plans,
    draw_clause,
    draw_subject,
    draw_weather,
)
from kutta.data.verbs import (
    ASKING,
    ATTEMPTING,
    KNOW,
    PEOPLE,
    REPORTING,
    VERBS,
    VERBS_OF_ACTION,
)
from kutta.files import write_text

Pair = tuple[str, str]

SHORTEST, LONGEST = 4, 20  # words of an English sentence


def statement(rng: Random) -> Pair:
    return _sentence(*_main_clause(rng, draw_clause(rng)), ".")


def yes_no_question(rng: Random) -> Pair:
    clause = draw_clause(rng, negation=0)
    return _sentence(english_question(clause), german_question(clause), "?")


def wh_question(rng: Random) -> Pair:
    (english, german), clause = draw_question(rng)
    if not english:
        return _sentence(english_statement(clause), german_statement(clause), "?")
    return _sentence(english_question(clause, english), german_statement(clause, german), "?")


def command(rng: Random) -> Pair:
    """Open the door! Please do not open the door."""
    negated = rng.random() < 0.25
    clause = draw_clause(
        rng,
        ("simple",),
        verb=pick(rng, HUMAN_ACTIONS),
        subject=YOU,
        adverbials=0,
        negation=float(negated),
    )
    english = f"{'do not ' if negated else ''}{clause.verb.en[0]} {clause.predicate.en}".strip()
    german = german_command(clause)
    if rng.random() < 0.4:
        return _sentence(f"please {english}", f"bitte {german}", ".")
    return _sentence(english, german, "!")


def coordination(rng: Random) -> Pair:
    a = draw_clause(rng, adverbials=0.2)
    b = draw_clause(rng, adverbials=0.2)
    english, german = pick(rng, ((" and", " und"), (", but", ", aber")))
    return _sentence(
        f"{english_statement(a)}{english} {english_statement(b)}",
        f"{german_statement(a)}{german} {german_statement(b)}",
        ".",
    )


class Conjunction(NamedTuple):
    en: str
    de: str
    main: Plans
    subordinate: Plans


CONJUNCTIONS = (
    Conjunction("because", "weil", ANY, ANY),
    Conjunction("because", "weil", ANY, ANY),
    Conjunction("although", "obwohl", ANY, ANY),
    Conjunction("if", "wenn", ("simple", "will", "modal"), PRESENT),
    # In the past 'when' would be 'als', so it stays in the present.
    Conjunction("when", "wenn", ("simple", "modal"), ("simple",)),
    Conjunction("while", "während", PRESENT, PRESENT),
    Conjunction("before", "bevor", ("simple", "modal"), ("simple",)),
    Conjunction("as soon as", "sobald", ("simple", "will", "modal"), ("simple",)),
    Conjunction("so that", "damit", ANY, ("can",)),
)


def subordination(rng: Random) -> Pair:
    """The clause with the verb at the end comes last, or first and counts as one element."""
    conjunction = pick(rng, CONJUNCTIONS)
    main = draw_clause(rng, conjunction.main, adverbials=0.2)
    if conjunction.subordinate == PRESENT and rng.random() < 0.2:
        side = draw_weather(rng)
    else:
        verb = pick(rng, VERBS_OF_ACTION)
        side = draw_clause(rng, conjunction.subordinate, verb=verb, adverbials=0.15)
    english = f"{conjunction.en} {english_statement(side)}"
    german = f"{conjunction.de} {german_subordinate(side)}"
    if conjunction.en != "so that" and rng.random() < 0.4:
        return _sentence(
            f"{english}, {english_statement(main)}", german_statement(main, f"{german},"), "."
        )
    return _sentence(
        f"{english_statement(main)} {english}", f"{german_statement(main)}, {german}", "."
    )


def report(rng: Random) -> Pair:
    """He says that ...; she does not know where ..."""
    if rng.random() < 0.5:
        main = draw_clause(rng, ("simple",), verb=pick(rng, REPORTING), negation=0.1)
        clause = draw_clause(rng, adverbials=0.25)
        english, german = f"that {english_statement(clause)}", f"dass {german_subordinate(clause)}"
    else:
        verb, unknown = pick(rng, ((ASKING[0], 0.0), (KNOW, 1.0)))
        main = draw_clause(rng, ("simple",), verb=verb, negation=unknown)
        english, german = _indirect_question(rng)
    return _sentence(
        f"{english_statement(main)} {english}", f"{german_statement(main)}, {german}", "."
    )


def _indirect_question(rng: Random) -> Pair:
    if rng.random() < 0.35:
        clause = draw_clause(rng, adverbials=0.25, negation=0)
        return f"whether {english_statement(clause)}", f"ob {german_subordinate(clause)}"
    (english, german), clause = draw_question(rng)
    return (
        f"{english} {english_statement(clause)}".strip(),
        f"{german} {german_subordinate(clause)}".strip(),
    )


def relative_subject(rng: Random) -> Pair:
    verb, nouns = pick(rng, RELATED_SUBJECTS)
    subject = related(rng, pick(rng, nouns), NOM)
    clause = draw_clause(rng, verb=verb, subject=subject, adverbials=0.2, negation=0.1)
    return _sentence(english_statement(clause), german_statement(clause), ".")


def relative_object(rng: Random) -> Pair:
    verb, nouns = pick(rng, RELATED_OBJECTS)
    subject = draw_subject(rng, verb.subjects, definite=False)
    thing = related(rng, pick(rng, nouns), ACC)
    clause = draw_clause(
        rng, verb=verb, subject=subject, predicate=in_field(thing, thing.en), negation=0
    )
    return _sentence(*_main_clause(rng, clause, end=False), ".")


def attempt(rng: Random) -> Pair:
    """The man tries to open the door: der Mann versucht, die Tür aufzumachen."""
    plans: Plans = ("simple", "simple", "perfect", "past")
    main = draw_clause(rng, plans, verb=pick(rng, ATTEMPTING), negation=0)
    return _with_infinitive(rng, main, "to", ", ")


def purpose(rng: Random) -> Pair:
    main = draw_clause(rng, verb=pick(rng, GOING), negation=0)
    return _with_infinitive(rng, main, "in order to", ", um ")


def _with_infinitive(rng: Random, main: Clause, to: str, um: str) -> Pair:
    inner = draw_clause(
        rng,
        ("simple",),
        verb=pick(rng, HUMAN_ACTIONS),
        subject=main.subject,
        adverbials=0,
        negation=0,
    )
    english, german = _main_clause(rng, main, end=False)
    return _sentence(
        f"{english} {to} {inner.verb.en[0]} {inner.predicate.en}".strip(),
        f"{german}{um}{german_infinitive(inner)}",
        ".",
    )


THERE = (
    (Words("in", "in"), nouns_of("room"), nouns_of("furniture device window door")),
    (Words("in", "in"), nouns_of("container"), nouns_of("food key pen book letter cup candle")),
    (Words("in", "in"), nouns_of("outdoors"), nouns_of("plant animal bench")),
    (
        Words("on", "auf"),
        nouns_of("table"),
        nouns_of("food provision text cup plate bottle candle"),
    ),
)


def existence(rng: Random) -> Pair:
    """There is a lamp in the kitchen: es gibt, with the accusative."""
    (english, german), places, things = pick(rng, THERE)
    thing = noun_phrase(rng, pick(rng, things), ACC, "there")
    place = noun_phrase(rng, pick(rng, places), DAT, "definite")
    there = f"there {'is' if thing.agreement == ER else 'are'} {thing.en}"
    where = prepositional(german, place.de)
    if rng.random() < 0.5:
        return _sentence(f"{english} {place.en} {there}", f"{where} gibt es {thing.de}", ".")
    return _sentence(f"{there} {english} {place.en}", f"es gibt {thing.de} {where}", ".")


def identity(rng: Random) -> Pair:
    """This is the house in which he lives."""
    thing = related(rng, pick(rng, RELATABLE), NOM)
    single = thing.agreement == ER
    return _sentence(
        f"{'this is' if single else 'these are'} {thing.en}",
        f"das {'ist' if single else 'sind'} {thing.de}",
        ".",
    )


def _related_nouns(nouns: tuple[Noun, ...]) -> tuple[Noun, ...]:
    return tuple(noun for noun in nouns if RELATIVES[noun.en[0]] and not noun.mass)


RELATABLE = _related_nouns(nouns_of("people animals goods building room outdoors open"))
RELATED_SUBJECTS = tuple((verb, _related_nouns(verb.subjects)) for verb in VERBS)
# A lone prefix after a relative clause is hard to read: 'macht die Tür, die rot ist, auf'.
RELATED_OBJECTS = tuple(
    (verb, nouns)
    for verb in OBJECT_VERBS
    if not verb.de.prefix and (nouns := _related_nouns(verb.objects))
)
HUMAN_ACTIONS = tuple(verb for verb in VERBS_OF_ACTION if PEOPLE[0] in verb.subjects)
GOING = tuple(verb for verb in HUMAN_ACTIONS if verb.frame in ("to", "city"))

PRODUCTIONS: dict[Callable[[Random], Pair], int] = {
    statement: 30,
    yes_no_question: 9,
    wh_question: 9,
    command: 6,
    coordination: 4,
    subordination: 14,
    report: 9,
    relative_subject: 6,
    relative_object: 5,
    attempt: 3,
    purpose: 2,
    existence: 3,
    identity: 2,
}
_WEIGHTED = tuple(each for each, weight in PRODUCTIONS.items() for _ in range(weight))


def _main_clause(rng: Random, clause: Clause, end: bool = True) -> Pair:
    """A statement, its adverbial perhaps in front; always so when it cannot stand at the `end`."""
    adverbial = clause.adverbial
    if not adverbial or adverbial.middle or (end and rng.random() < 0.6):
        return english_statement(clause), german_statement(clause)
    front = adverbial.en + ("," if adverbial.comma else "")
    return (
        english_statement(clause, front, fronted=True),
        german_statement(clause, adverbial.de, fronted=True),
    )


def _sentence(english: str, german: str, mark: str) -> Pair:
    """Capital letter, final mark; the comma after a relative clause melts into what follows."""
    german = (german + mark).replace(",,", ",").replace(f",{mark}", mark)
    return english[0].upper() + english[1:] + mark, german[0].upper() + german[1:]


def _natural(english: str) -> bool:
    """Of readable length, and no name said twice where one would say 'she'."""
    return SHORTEST <= english.count(" ") + 1 <= LONGEST and not any(
        english.count(name) > 1 for name in NAMES
    )


def _sentences(seed: int) -> Iterator[Pair]:
    """Endless, each English sentence once."""
    rng = Random(seed)
    seen: set[str] = set()
    while True:
        pair = pick(rng, _WEIGHTED)(rng)
        if pair[0] not in seen and _natural(pair[0]):
            seen.add(pair[0])
            yield pair


def generate(count: int, seed: int, exclude: Set[str] = frozenset()) -> list[Pair]:
    """`count` pairs with distinct English sentences, none of them in `exclude`."""
    sentences = (pair for pair in _sentences(seed) if pair[0] not in exclude)
    return list(islice(sentences, count))


def write_corpus(folder: Path, train: int, valid: int, test: int, seed: int) -> None:
    """Write {train,valid,test}.{en,de}; no sentence of one split is in another, on either side."""
    sentences = _sentences(seed)
    taken: set[str] = set()
    for split, count in (("test", test), ("valid", valid), ("train", train)):
        pairs = list(islice((pair for pair in sentences if pair[1] not in taken), count))
        taken.update(german for _, german in pairs)
        for side, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            write_text(folder / f"{split}.{language}", lines)

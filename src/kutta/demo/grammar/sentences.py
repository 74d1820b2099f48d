"""The productions: each draws one kind of sentence, in both languages at once."""

from random import Random
from typing import NamedTuple

from kutta.demo.grammar.clauses import (
    Clause,
    english_question,
    english_statement,
    german_command,
    german_infinitive,
    german_question,
    german_statement,
    german_subordinate,
)
from kutta.demo.grammar.frames import in_field
from kutta.demo.grammar.gaps import OBJECT_VERBS, RELATIVES, draw_question, related
from kutta.demo.grammar.lexicon import nouns_of
from kutta.demo.grammar.morphology import ACC, DAT, ER, NOM, Noun, prepositional
from kutta.demo.grammar.phrases import YOU, noun_phrase, pick
from kutta.demo.grammar.places import Words
from kutta.demo.grammar.predication import (
    ANY,
    PRESENT,
    Plans,
    draw_clause,
    draw_subject,
    draw_weather,
)
from kutta.demo.grammar.verbs import (
    ASKING,
    ATTEMPTING,
    KNOW,
    PEOPLE,
    REPORTING,
    VERBS,
    VERBS_OF_ACTION,
    Verb,
)

Pair = tuple[str, str]


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
    english, german = pick(rng, ((", and", ", und"), (", but", ", aber")))
    return _sentence(
        f"{english_statement(a)}{english} {english_statement(b)}",
        f"{german_statement(a)}{german} {german_statement(b)}",
        ".",
    )


class Conjunction(NamedTuple):
    """What tenses it joins; reasons may be of any kind, while conditions and times are events."""

    en: str
    de: str
    main: Plans
    side: Plans
    reason: bool = False


CONJUNCTIONS = (
    Conjunction("because", "weil", ANY, ANY, reason=True),
    Conjunction("because", "weil", ANY, ANY, reason=True),
    Conjunction("although", "obwohl", ANY, ANY, reason=True),
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
    verbs = VERBS if conjunction.reason else VERBS_OF_ACTION
    main = draw_clause(rng, conjunction.main, verb=pick(rng, verbs), adverbials=0.2)
    if "progressive" in conjunction.side and rng.random() < 0.15:
        side = draw_weather(rng)
    else:
        chance = 0.15 if conjunction.reason else 0.0
        verb = pick(rng, verbs)
        side = draw_clause(rng, conjunction.side, verb=verb, adverbials=chance, negation=chance)
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
    head, about = related(rng, pick(rng, nouns), NOM)
    if _repeats(verb, about):
        return relative_subject(rng)
    # The comma that closes the relative clause is there before the finite verb.
    subject = head._replace(en=f"{head.en} {about.en}", de=f"{head.de}, {about.de},")
    clause = draw_clause(rng, verb=verb, subject=subject, adverbials=0.2, negation=0.1)
    return _sentence(english_statement(clause), german_statement(clause), ".")


def relative_object(rng: Random) -> Pair:
    """The relative clause follows the whole main clause: ich habe das Haus gesehen, in dem ..."""
    verb, nouns = pick(rng, RELATED_OBJECTS)
    subject = draw_subject(rng, verb.subjects, definite=False)
    head, about = related(rng, pick(rng, nouns), ACC)
    if _repeats(verb, about):
        return relative_object(rng)
    predicate = in_field(head, f"{head.en} {about.en}")
    clause = draw_clause(rng, verb=verb, subject=subject, predicate=predicate, negation=0)
    english, german = _main_clause(rng, clause, end=False)
    return _sentence(english, f"{german}, {about.de}", ".")


def _repeats(verb: Verb, about: Words) -> bool:
    """'eats the apple that the dog has eaten'."""
    said = about.en.split()
    return any(form.split()[0] in said for form in verb.en)


def attempt(rng: Random) -> Pair:
    """The man tries to open the door: der Mann versucht, die Tür aufzumachen."""
    plans: Plans = ("simple", "simple", "perfect", "past")
    main = draw_clause(rng, plans, verb=pick(rng, ATTEMPTING), negation=0)
    return _with_infinitive(rng, main, pick(rng, HUMAN_ACTIONS), "to", ", ")


def purpose(rng: Random) -> Pair:
    """One goes somewhere in order to do something there."""
    main = draw_clause(rng, verb=pick(rng, GOING), negation=0)
    return _with_infinitive(rng, main, pick(rng, PURPOSES), "in order to", ", um ")


def _with_infinitive(rng: Random, main: Clause, verb: Verb, to: str, um: str) -> Pair:
    inner = draw_clause(
        rng,
        ("simple",),
        verb=verb,
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


# Where there is what. On a table things lie or stand, 'es gibt' would be odd.
THERE = (
    (nouns_of("room"), nouns_of("furniture device window door")),
    (nouns_of("building"), nouns_of("furniture device picture")),
    (nouns_of("outdoors"), nouns_of("plant animal bench")),
)


def existence(rng: Random) -> Pair:
    """There is a lamp in the kitchen: es gibt, with the accusative."""
    places, things = pick(rng, THERE)
    thing = noun_phrase(rng, pick(rng, things), ACC, "there")
    place = noun_phrase(rng, pick(rng, places), DAT, "scene")
    there = f"there {'is' if thing.agreement == ER else 'are'} {thing.en}"
    where = prepositional("in", place.de)
    if rng.random() < 0.5:
        return _sentence(f"in {place.en} {there}", f"{where} gibt es {thing.de}", ".")
    return _sentence(f"{there} in {place.en}", f"es gibt {thing.de} {where}", ".")


def identity(rng: Random) -> Pair:
    """This is the house in which he lives."""
    thing, about = related(rng, pick(rng, RELATABLE), NOM)
    this, das = ("this is", "das ist") if thing.agreement == ER else ("these are", "das sind")
    return _sentence(f"{this} {thing.en} {about.en}", f"{das} {thing.de}, {about.de}", ".")


def _related_nouns(nouns: tuple[Noun, ...]) -> tuple[Noun, ...]:
    return tuple(noun for noun in nouns if RELATIVES[noun.en[0]] and not noun.mass)


RELATABLE = _related_nouns(nouns_of("people animals goods building room outdoors open"))
RELATED_SUBJECTS = tuple((verb, _related_nouns(verb.subjects)) for verb in VERBS)
RELATED_OBJECTS = tuple(
    (verb, nouns) for verb in OBJECT_VERBS if (nouns := _related_nouns(verb.objects))
)
HUMAN_ACTIONS = tuple(verb for verb in VERBS_OF_ACTION if PEOPLE[0] in verb.subjects)
PURPOSES = tuple(
    verb
    for verb in HUMAN_ACTIONS
    if verb.frame in ("doing", "receiver") or verb.en[0] in ("work", "dance", "visit", "pick up")
)
GOING = tuple(verb for verb in HUMAN_ACTIONS if verb.frame in ("to", "city"))


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
    """Capital letter and final mark."""
    return english[0].upper() + english[1:] + mark, german[0].upper() + german[1:] + mark

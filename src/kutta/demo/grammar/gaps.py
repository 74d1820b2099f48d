"""Clauses in which one part is asked for or related to: wh-questions and relative clauses."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

from kutta.demo.grammar.clauses import Clause, Predicate, english_statement, german_subordinate
from kutta.demo.grammar.determiners import BAGS, HOW_MANY, WHICH, WHOSE, Determiner
from kutta.demo.grammar.frames import PEOPLE_KINDS
from kutta.demo.grammar.lexicon import COMPOUNDS, NOUNS, nouns_of
from kutta.demo.grammar.morphology import ACC, DAT, NOM, RELATIVE, Noun
from kutta.demo.grammar.phrases import WHO, Phrase, adjectives, determined, pick, same_thing
from kutta.demo.grammar.places import Words
from kutta.demo.grammar.predication import PRESENT, Plans, draw_clause, draw_subject
from kutta.demo.grammar.verbs import BE, PEOPLE, VERBS, Verb

TENSES: Plans = (*PRESENT, "perfect", "past", "will", "modal")
# Where there is no adverbial, English cannot always tell present from past: 'they read'.
TIMELESS: Plans = (*PRESENT, "perfect", "modal")
FUTURE: Plans = (*PRESENT, "will", "modal")


def _with_frame(*frames: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in VERBS if verb.frame in frames)


OBJECT_VERBS = _with_frame("object", "doing")
DATIVE_VERBS = _with_frame("receiver")
ABOUT_VERBS = _with_frame("about")
PLACE_VERBS = tuple(verb for verb in _with_frame("where", "home") if PEOPLE[0] in verb.subjects)


def _with_objects(people: bool) -> tuple[Verb, ...]:
    """Verbs that are done to people only, or never to people."""
    return tuple(
        verb
        for verb in OBJECT_VERBS
        if all((noun.kind in PEOPLE_KINDS) == people for noun in verb.objects)
    )


# Questions


class Question(NamedTuple):
    """A question word and its clause; the word is empty when the subject itself is asked for."""

    word: Words
    clause: Clause


THING_VERBS = _with_objects(people=False)
PERSON_VERBS = _with_objects(people=True)
DIRECTION_VERBS = _with_frame("to", "city")
PASSING_VERBS = tuple(verb for verb in VERBS if verb.aspect != "state")
HUMAN_VERBS = tuple(verb for verb in VERBS if PEOPLE[0] in verb.subjects)
COUNTABLES = tuple(
    (verb, countable)
    for verb in OBJECT_VERBS
    if (countable := tuple(n for n in verb.objects if not n.mass and n.kind != "parent"))
)
AGING = nouns_of("living building vehicle")


def _gapped(rng: Random, verb: Verb, english: str, german: str) -> Question:
    clause = draw_clause(rng, TENSES, verb=verb, predicate=Predicate(), negation=0)
    return Question(Words(english, german), clause)


def _who(rng: Random) -> Question:
    verb = pick(rng, HUMAN_VERBS)
    return Question(Words("", ""), draw_clause(rng, TENSES, verb=verb, subject=WHO, negation=0))


def _what(rng: Random) -> Question:
    return _gapped(rng, pick(rng, THING_VERBS), "what", "was")


def _whom(rng: Random) -> Question:
    if rng.random() < 0.5:
        return _gapped(rng, pick(rng, PERSON_VERBS), "whom", "wen")
    return _gapped(rng, pick(rng, DATIVE_VERBS), "whom", "wem")


def _where(rng: Random) -> Question:
    if rng.random() < 0.5:
        return _gapped(rng, pick(rng, PLACE_VERBS), "where", "wo")
    return _gapped(rng, pick(rng, DIRECTION_VERBS), "where", "wohin")


def _when(rng: Random) -> Question:
    clause = draw_clause(rng, FUTURE, verb=pick(rng, PASSING_VERBS), adverbials=0, negation=0)
    return Question(Words("when", "wann"), clause)


def _why(rng: Random) -> Question:
    return Question(Words("why", "warum"), draw_clause(rng, TENSES, negation=0.3))


def _how_old(rng: Random) -> Question:
    subject = draw_subject(rng, AGING, definite=True)
    clause = Clause(subject, BE, "simple", None, False, Predicate())
    return Question(Words("how old", "wie alt"), clause)


def _how_many(rng: Random) -> Question:
    return _choice(rng, HOW_MANY)


def _which(rng: Random) -> Question:
    return _choice(rng, WHICH)


def _choice(rng: Random, determiner: Determiner) -> Question:
    verb, nouns = pick(rng, COUNTABLES)
    noun = pick(rng, nouns)
    asked = determined(determiner, adjectives(rng, noun), noun, ACC)
    return _gapped(rng, verb, asked.en, asked.de)


QUESTIONS: tuple[Callable[[Random], Question], ...] = (
    *(_who, _who, _what, _what, _whom, _where, _where),
    *(_when, _why, _why, _how_old, _how_many, _which),
)


def draw_question(rng: Random) -> Question:
    """who, what, whom, where, when, why, how old, how many or which."""
    return pick(rng, QUESTIONS)(rng)


# Relative clauses

OWNED = nouns_of("parent family relation animal vehicle device")
PLACES = {
    "room": Words("in", "in"),
    "building": Words("in", "in"),
    "outdoors": Words("in", "in"),
    "spot": Words("at", "an"),
    "open": Words("on", "auf"),
}
SUBJECT_OF = {
    name: tuple(verb for verb in VERBS if noun in verb.subjects) for name, noun in NOUNS.items()
}
OBJECT_OF = {
    name: tuple(verb for verb in OBJECT_VERBS if noun in verb.objects)
    for name, noun in NOUNS.items()
}


def _stranded(verb: Verb) -> Verb:
    """'wait for' -> 'wait': the preposition stands before the relative pronoun."""
    base, third, past, participle, ing = (form.rsplit(" ", 1)[0] for form in verb.en)
    return replace(verb, en=(base, third, past, participle, ing))


ABOUT_PEOPLE = tuple(
    (verb.en[0].rsplit(" ", 1)[1], _stranded(verb))
    for verb in ABOUT_VERBS
    if PEOPLE[0] in verb.objects
)


def related(rng: Random, noun: Noun, case: int) -> tuple[Phrase, Words]:
    """A noun phrase and a relative clause about it: das Buch, das ich lese."""
    compounds = COMPOUNDS.get(noun.en[0])
    shown = pick(rng, compounds) if compounds and rng.random() < 0.3 else noun
    head = determined(
        pick(rng, pick(rng, BAGS[noun.kind]["head"])), adjectives(rng, shown), shown, case
    )
    return head, pick(rng, RELATIVES[noun.en[0]])(rng, noun, head)


def _is_person(head: Phrase) -> bool:
    return head.noun is not None and head.noun.kind in PEOPLE_KINDS


def _as_subject(rng: Random, noun: Noun, head: Phrase) -> Words:
    word = "who" if _is_person(head) else "that"
    subject = head._replace(en=word, de=RELATIVE[NOM][head.column], definite=True)
    verb = pick(rng, SUBJECT_OF[noun.en[0]])
    clause = draw_clause(rng, TIMELESS, verb=verb, subject=subject, adverbials=0, negation=0.1)
    return Words(english_statement(clause), german_subordinate(clause))


def _as_object(rng: Random, noun: Noun, head: Phrase) -> Words:
    verb = pick(rng, OBJECT_OF[noun.en[0]])
    return _around(rng, verb, head, "whom" if _is_person(head) else "that", "", ACC)


def _as_receiver(rng: Random, noun: Noun, head: Phrase) -> Words:
    return _around(rng, pick(rng, HELPING), head, "whom", "", DAT)


def _after_preposition(rng: Random, noun: Noun, head: Phrase) -> Words:
    preposition, verb = pick(rng, ABOUT_PEOPLE)
    return _around(rng, verb, head, f"{preposition} whom", verb.preposition, verb.case)


def _as_place(rng: Random, noun: Noun, head: Phrase) -> Words:
    english, german = PLACES[noun.kind]
    return _around(rng, pick(rng, PLACE_VERBS), head, f"{english} which", german, DAT)


HELPING = tuple(verb for verb in DATIVE_VERBS if PEOPLE[0] in verb.subjects)


def _around(
    rng: Random, verb: Verb, head: Phrase, english: str, preposition: str, case: int
) -> Words:
    """Relative pronoun first, then somebody else's clause without that part."""
    subject = draw_subject(rng, verb.subjects, definite=True)
    while same_thing(subject, head):
        subject = draw_subject(rng, verb.subjects, definite=True)
    clause = draw_clause(
        rng, TIMELESS, verb=verb, subject=subject, predicate=Predicate(), adverbials=0, negation=0.1
    )
    german = f"{preposition} {RELATIVE[case][head.column]}".strip()
    return Words(f"{english} {english_statement(clause)}", f"{german} {german_subordinate(clause)}")


def _whose(rng: Random, noun: Noun, head: Phrase) -> Words:
    """whose old dog is sleeping, dessen alter Hund schläft."""
    owned = pick(rng, OWNED)
    subject = determined(WHOSE[head.column], adjectives(rng, owned), owned, NOM)
    verb = pick(rng, SUBJECT_OF[owned.en[0]])
    clause = draw_clause(rng, TIMELESS, verb=verb, subject=subject, adverbials=0, negation=0.1)
    return Words(english_statement(clause), german_subordinate(clause))


def _relatives(noun: Noun) -> tuple[Callable[[Random, Noun, Phrase], Words], ...]:
    """What can be told about a noun."""
    person = noun.kind in PEOPLE_KINDS
    return (
        *((_as_subject,) if SUBJECT_OF[noun.en[0]] else ()),
        *((_as_object,) if OBJECT_OF[noun.en[0]] else ()),
        *((_as_subject, _as_receiver, _after_preposition, _whose) if person else ()),
        *((_as_place, _as_place) if noun.kind in PLACES else ()),
    )


RELATIVES = {name: _relatives(noun) for name, noun in NOUNS.items()}

"""Word order of the built-in corpus: verb second, verb last, negation; checked by hand."""

from kutta.demo.grammar import determiners as det
from kutta.demo.grammar import verbs
from kutta.demo.grammar.clauses import (
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
from kutta.demo.grammar.lexicon import NOUNS
from kutta.demo.grammar.morphology import ER, ICH, NOM
from kutta.demo.grammar.phrases import YOU, Phrase, determined


def verb(english: str) -> verbs.Verb:
    return next(each for each in verbs.VERBS if each.en[0] == english)


MAN = determined(det.THE, (), NOUNS["man"], NOM)
DOOR = Predicate("the door", known="die Tür")
I = Phrase("I", "ich", ICH, True, "ich")  # noqa: E741


def clause(english: str, predicate: Predicate, tense: str = "simple", **more: object) -> Clause:
    base = Clause(MAN, verb(english), tense, None, False, predicate)
    return base._replace(**more)


def test_separable_verbs_part_and_rejoin() -> None:
    opens = clause("open", DOOR)
    assert german_statement(opens) == "der Mann macht die Tür auf"
    assert german_statement(opens, "heute") == "heute macht der Mann die Tür auf"
    assert german_question(opens) == "macht der Mann die Tür auf"
    assert german_subordinate(opens) == "der Mann die Tür aufmacht"
    assert german_infinitive(opens) == "die Tür aufzumachen"
    assert german_command(opens._replace(subject=YOU)) == "mach die Tür auf"
    can = opens._replace(modal=verbs.CAN)
    assert german_statement(can) == "der Mann kann die Tür aufmachen"
    assert german_subordinate(can) == "der Mann die Tür aufmachen kann"
    has = opens._replace(tense="perfect")
    assert german_statement(has) == "der Mann hat die Tür aufgemacht"
    assert german_subordinate(has) == "der Mann die Tür aufgemacht hat"


def test_perfect_with_sein_and_past_of_sein() -> None:
    home = Predicate("home", rest="nach Hause")
    assert german_statement(clause("go", home, "past")) == "der Mann ist nach Hause gegangen"
    assert german_statement(clause("go", home, subject=I)) == "ich gehe nach Hause"
    assert german_statement(clause("be", Predicate(rest="müde"), "past")) == "der Mann war müde"


def test_negation_stands_after_known_objects_and_before_the_rest() -> None:
    reads = clause("read", Predicate("the book", known="das Buch"), negated=True)
    assert german_statement(reads) == "der Mann liest das Buch nicht"
    assert english_statement(reads) == "the man does not read the book"
    kein = clause("read", Predicate("a book", fresh="kein Buch", kein=True), negated=True)
    assert german_statement(kein) == "der Mann liest kein Buch"
    sleeps = clause("sleep", Predicate("at home", rest="zu Hause"), negated=True)
    assert german_statement(sleeps) == "der Mann schläft nicht zu Hause"
    assert (
        german_statement(clause("open", DOOR, negated=True)) == "der Mann macht die Tür nicht auf"
    )


def test_must_not_is_darf_nicht_but_need_not_is_muss_nicht() -> None:
    must = next(each for each in verbs.MODALS if each.aux == "must")
    have_to = next(each for each in verbs.MODALS if each.base == "have to")
    denied = clause("open", DOOR, modal=must, negated=True)
    assert english_statement(denied) == "the man must not open the door"
    assert german_statement(denied) == "der Mann darf die Tür nicht aufmachen"
    free = denied._replace(modal=have_to)
    assert english_statement(free) == "the man does not have to open the door"
    assert german_statement(free) == "der Mann muss die Tür nicht aufmachen"


def test_english_uses_do_only_where_it_must() -> None:
    assert english_question(clause("open", DOOR)) == "does the man open the door"
    assert english_question(clause("open", DOOR, "progressive")) == "is the man opening the door"
    assert english_question(clause("open", DOOR, "past"), "why") == "why did the man open the door"
    assert english_question(clause("be", Predicate("tired"))) == "is the man tired"
    cannot = clause("open", DOOR, modal=verbs.CAN, negated=True)
    assert english_statement(cannot) == "the man cannot open the door"


def test_subject_and_verb_agree() -> None:
    assert english_statement(clause("go", Predicate("home"))) == "the man goes home"
    women = determined(det.THE_PLURAL, (), NOUNS["woman"], NOM)
    plural = clause("go", Predicate("home", rest="nach Hause"), subject=women)
    assert english_statement(plural) == "the women go home"
    assert german_statement(plural) == "die Frauen gehen nach Hause"
    assert MAN.agreement == ER

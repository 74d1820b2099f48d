"""Word order: one clause, laid out as statement, question, command or subordinate clause.

German puts the finite verb second (or first in questions) and everything else of the verb at the
end; in subordinate clauses all of it goes to the end. English needs 'do' where German does not.
"""

from typing import NamedTuple

from kutta.demo.grammar.adverbials import Adverbial
from kutta.demo.grammar.morphology import FourForms
from kutta.demo.grammar.phrases import Phrase
from kutta.demo.grammar.verbs import BE, Modal, Verb

AM: FourForms = ("am", "are", "is", "are")
WAS: FourForms = ("was", "were", "was", "were")
WAR: FourForms = ("war", "warst", "war", "waren")
HAVE: FourForms = ("have", "have", "has", "have")
DO: FourForms = ("do", "do", "does", "do")


class Predicate(NamedTuple):
    """What follows the verb: in English a string, in German split by its place in the middle.

    Pronouns stand before the adverbial, new things after it; known things go before a negation
    and otherwise after the adverbial too; `rest` follows 'nicht', `after` the whole verb.
    """

    en: str = ""
    pronoun: str = ""
    known: str = ""
    fresh: str = ""
    rest: str = ""
    after: str = ""
    kein: bool = False  # the negation, if any, is in an object


class Clause(NamedTuple):
    subject: Phrase
    verb: Verb
    tense: str  # simple, progressive, perfect, past; modals stand with 'simple'
    modal: Modal | None
    negated: bool
    predicate: Predicate
    adverbial: Adverbial | None = None


def words(*parts: str) -> str:
    return " ".join(filter(None, parts))


# English


def english_verb(clause: Clause, support: bool) -> tuple[str, str]:
    """Auxiliary and the rest; without an auxiliary of its own, 'do' when `support` is asked."""
    base, third, past, participle, ing = clause.verb.en
    who, tense, modal = clause.subject.agreement, clause.tense, clause.modal
    if modal and modal.aux:
        return modal.aux, words(modal.base, base)
    if modal:
        base, third = f"{modal.base} {base}", f"{modal.third} {base}"
    elif clause.verb is BE:
        return (WAS if tense == "past" else AM)[who], ""
    elif tense == "progressive":
        return AM[who], ing
    elif tense == "perfect":
        return HAVE[who], participle
    if tense == "past":
        return ("did", base) if support else ("", past)
    return (DO[who], base) if support else ("", third if DO[who] == "does" else base)


def english_statement(clause: Clause, front: str = "", fronted: bool = False) -> str:
    """Subject first; `fronted` leaves the adverbial out, it stands in `front`."""
    aux, rest = english_verb(clause, clause.negated)
    middle, end = _english_adverbial(clause, fronted)
    if clause.negated:
        aux += "not" if aux == "can" else " not"
    return words(front, clause.subject.en, aux, middle, rest, clause.predicate.en, end)


def english_question(clause: Clause, front: str = "") -> str:
    """Auxiliary before the subject, after a question word if there is one."""
    aux, rest = english_verb(clause, True)
    middle, end = _english_adverbial(clause, False)
    negation = "not" if clause.negated else ""
    return words(front, aux, clause.subject.en, negation, middle, rest, clause.predicate.en, end)


def _english_adverbial(clause: Clause, fronted: bool) -> tuple[str, str]:
    adverbial = clause.adverbial
    if not adverbial or fronted:
        return "", ""
    return (adverbial.en, "") if adverbial.middle else ("", adverbial.en)


# German


def german_verb(clause: Clause) -> tuple[str, str]:
    """The finite verb and what closes the clause: macht ... auf, hat ... gelesen."""
    verb, who, modal = clause.verb.de, clause.subject.agreement, clause.modal
    if modal:
        forms = modal.de_negated if clause.negated else modal.de
        return forms[who], verb.full_infinitive
    if clause.tense in ("perfect", "past"):
        if clause.verb is BE:
            return WAR[who], ""  # the one verb whose past is not the perfect
        return verb.auxiliary[who], verb.participle
    return verb.present[who], verb.prefix


def german_middle(clause: Clause, fronted: bool = False) -> str:
    """Everything between the finite verb and the end of the clause, the subject aside."""
    _, pronoun, known, fresh, rest, _, kein = clause.predicate
    nicht = "nicht" if clause.negated and not kein else ""
    adverbial = clause.adverbial
    if not adverbial or fronted:
        return words(pronoun, known, fresh, nicht, rest)
    if clause.negated or adverbial.late:
        return words(pronoun, known, adverbial.de, fresh, nicht, rest)
    return words(pronoun, adverbial.de, known, fresh, rest)


def german_statement(clause: Clause, front: str = "", fronted: bool = False) -> str:
    """The finite verb is the second element, whatever comes first."""
    finite, closing = german_verb(clause)
    middle, after = german_middle(clause, fronted), clause.predicate.after
    if front:
        return words(front, finite, clause.subject.de, middle, closing, after)
    return words(clause.subject.de, finite, middle, closing, after)


def german_question(clause: Clause) -> str:
    finite, closing = german_verb(clause)
    middle, after = german_middle(clause), clause.predicate.after
    return words(finite, clause.subject.de, middle, closing, after)


def german_subordinate(clause: Clause) -> str:
    """The finite verb comes last; a separable prefix rejoins it."""
    finite, closing = german_verb(clause)
    end = closing + finite if closing == clause.verb.de.prefix else f"{closing} {finite}"
    return words(clause.subject.de, german_middle(clause), end, clause.predicate.after)


def german_command(clause: Clause) -> str:
    verb = clause.verb.de
    return words(verb.imperative, german_middle(clause), verb.prefix)


def german_infinitive(clause: Clause) -> str:
    """With 'zu', which steps between prefix and verb: die Tür aufzumachen."""
    return words(german_middle(clause), clause.verb.de.zu_infinitive)

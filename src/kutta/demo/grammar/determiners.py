"""Determiners in both languages, with the adjective endings they ask for.

BAGS says which determiner a noun may take, by its kind and by its role in the sentence.
"""

from dataclasses import dataclass

from kutta.demo.grammar.lexicon import NAMES, NOUN_TABLE
from kutta.demo.grammar.morphology import (
    DEFINITE,
    DER_ENDINGS,
    EIN_ENDINGS,
    GEN,
    MIXED,
    RELATIVE,
    STRONG,
    WEAK,
    Table,
    english_number,
    german_number,
    listed,
    table,
)


@dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    """English word, German words by case and gender, and the adjective endings after them."""

    en: str
    de: Table
    endings: Table
    plural: bool = False
    definite: bool = False


def _same(word: str) -> Table:
    return ((word,) * 4,) * 4


THE = Determiner("the", DEFINITE, WEAK, definite=True)
THE_PLURAL = Determiner("the", DEFINITE, WEAK, plural=True, definite=True)
THIS = Determiner("this", table(DER_ENDINGS, "dies"), WEAK, definite=True)
THESE = Determiner("these", table(DER_ENDINGS, "dies"), WEAK, plural=True, definite=True)
EVERY = Determiner("every", table(DER_ENDINGS, "jed"), WEAK)
ALL = Determiner("all", table(DER_ENDINGS, "all"), WEAK, plural=True)
A = Determiner("a", table(EIN_ENDINGS, "ein"), MIXED)
BARE = Determiner("", _same(""), STRONG)
BARE_PLURAL = Determiner("", _same(""), STRONG, plural=True)
MANY = Determiner("many", table(DER_ENDINGS, "viel"), STRONG, plural=True)
SOME = Determiner("some", table(DER_ENDINGS, "einig"), STRONG, plural=True)
WHICH = Determiner("which", table(DER_ENDINGS, "welch"), WEAK)
HOW_MANY = Determiner("how many", table(DER_ENDINGS, "wie viel"), STRONG, plural=True)

_KEIN = table(EIN_ENDINGS, "kein")
NO = Determiner("no", _KEIN, MIXED)
NO_PLURAL = Determiner("no", _KEIN, MIXED, plural=True)
NOT_A = Determiner("a", _KEIN, MIXED)  # does not buy a book = kauft kein Buch
NOT_ANY = Determiner("any", _KEIN, MIXED)
NOT_ANY_PLURAL = Determiner("any", _KEIN, MIXED, plural=True)

_PRONOUN_STEMS = {
    "my": "mein",
    "your": "dein",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
    "their": "ihr",
}
_OWNED = tuple(
    Determiner(en, table(EIN_ENDINGS, stem), MIXED, plural, definite=True)
    for plural in (False, True)
    for en, stem in _PRONOUN_STEMS.items()
) + tuple(
    Determiner(f"{name}'s", _same(f"{name}s"), STRONG, plural, definite=True)
    for plural in (False, True)
    for name in NAMES
)
OWNERS = _OWNED[: len(_PRONOUN_STEMS)]
POSSESSIVES = tuple(each for each in _OWNED if not each.plural)
POSSESSIVES_PLURAL = tuple(each for each in _OWNED if each.plural)
NUMERALS = tuple(
    Determiner(english_number(n), _same(german_number(n)), STRONG, plural=True)
    for n in range(2, 100)
)
FEW_NUMERALS = NUMERALS[:11]
THE_NUMERALS = tuple(
    Determiner(
        f"the {each.en}",
        tuple(tuple(f"{word} {each.de[0][0]}" for word in row) for row in DEFINITE),
        WEAK,
        plural=True,
        definite=True,
    )
    for each in FEW_NUMERALS
)

# By the column of the owner: dessen, deren.
WHOSE = tuple(Determiner("whose", _same(word), STRONG) for word in RELATIVE[GEN])

MASS_KINDS = listed("provision drink weather")
# Only what people have takes 'my': 'my brother', not 'my king'; 'my man' would be 'my husband'.
OWNED_KINDS = listed(
    "parent family relation animal food dish provision drink text thing device furniture part "
    "clothing vehicle room event"
)
# What comes in large numbers.
NUMEROUS_KINDS = listed("person youth animal wild food text thing plant")

# A role draws one of its bags, then one of the determiners in it.
Bag = tuple[Determiner, ...]

# The head of a relative clause.
HEAD_BAGS: tuple[Bag, ...] = ((THE,), (THE,), (A,), (THE_PLURAL,), (MANY, *FEW_NUMERALS[:3]))


def _roles(kind: str) -> dict[str, tuple[Bag, ...]]:
    the: Bag = (THE,)
    mine = (POSSESSIVES,) if kind in OWNED_KINDS else ()
    # Not 'Maria and Julia's teacher': is it the teacher of both?
    owner: tuple[Bag, ...] = (OWNERS,) if kind in OWNED_KINDS else ()
    if kind in MASS_KINDS:
        known = (the, the, (THIS,), *mine)
        return {
            "definite": known,
            "subject": known,
            "object": (*known, *((BARE,),) * 4),
            "held": (*known, *((BARE,),) * 4),
            "negated": ((NOT_ANY,),),
            "there": ((BARE,), (NO,)),
            "one": (the,),
        }
    if kind == "parent":  # one has not many of them
        close = (the, the, (THIS,), *mine, *mine)
        roles = dict.fromkeys(listed("definite subject receiver object held negated"), close)
        return roles | {"head": (the,), "one": (the, *owner), "owner": (the, *owner)}
    ours = (POSSESSIVES_PLURAL,) if mine else ()
    known = (the, the, the, (THE_PLURAL,), (THIS, THESE), *mine, *ours)
    counted = (NUMERALS if kind in NUMEROUS_KINDS else FEW_NUMERALS, FEW_NUMERALS, THE_NUMERALS)
    if kind == "family":
        close = (*known, *mine, *mine)
        anyone = (*close, (A,), FEW_NUMERALS[:2])
        known_roles = dict.fromkeys(listed("definite negated"), close)
        open_roles = dict.fromkeys(listed("subject receiver object held"), anyone)
        alone = {"head": HEAD_BAGS, "one": (the, *owner), "owner": (the, *owner)}
        return known_roles | open_roles | alone
    everyone = (*known, the, (A,), (A,), (A,), (MANY, SOME, ALL, EVERY), *counted)
    return {
        "definite": known,
        "subject": everyone,
        "receiver": everyone,
        "object": (*everyone, (BARE_PLURAL,)),
        "held": (*everyone, (BARE_PLURAL,), (NO, NO_PLURAL)),
        "negated": ((NOT_A,), (NOT_ANY_PLURAL,)),
        "there": ((A,), (A,), (MANY, SOME), *counted[:2], (NO, NO_PLURAL)),
        "one": ((A,), the, *owner),
        "head": HEAD_BAGS,
        # An owner is singular: in English 'the teachers'' sounds like 'the teacher's'.
        "owner": (the, *owner),
        "scene": (the, the, the, (THIS,), *mine),
        "ground": (the, the, the, the, (A,), (THIS,)),
    }


BAGS = {kind: _roles(kind) for kind in NOUN_TABLE}

"""Adverbials of time and circumstance, as data: when it happens, and despite what.

Each goes with certain tenses only, so that English and German agree on the tense.
"""

from typing import NamedTuple

from kutta.demo.grammar.lexicon import ADJECTIVES_OF, nouns_of
from kutta.demo.grammar.morphology import (
    DAT,
    DEFINITE,
    GEN,
    WEAK,
    english_number,
    german_number,
)


class Adverbial(NamedTuple):
    """When or under which circumstances; `middle` stands before the English verb (often)."""

    en: str
    de: str
    middle: bool = False
    comma: bool = False  # when it opens the English sentence
    late: bool = False  # follows known objects: 'hat das Buch schon gelesen'


def _adverbials(text: str) -> tuple[Adverbial, ...]:
    pairs = (entry.split("=") for entry in text.split(";"))
    return tuple(Adverbial(en.strip(), de.strip()) for en, de in pairs)


_DAYS = _adverbials(
    "on Monday = am Montag; on Tuesday = am Dienstag; on Wednesday = am Mittwoch; "
    "on Thursday = am Donnerstag; on Friday = am Freitag; on Saturday = am Samstag; "
    "on Sunday = am Sonntag"
)
_CLOCK = tuple(
    Adverbial(f"at {english_number(n)} o'clock", f"um {german_number(n) if n > 1 else 'ein'} Uhr")
    for n in range(1, 13)
)
_AGO = tuple(
    Adverbial(f"{english_number(n)} {en} ago", f"vor {german_number(n)} {de}")
    for n in range(2, 13)
    for en, de in (("days", "Tagen"), ("weeks", "Wochen"))
)
_AHEAD = tuple(
    Adverbial(f"in {english_number(n)} {en}", f"in {german_number(n)} {de}")
    for n in range(2, 13)
    for en, de in (("days", "Tagen"), ("weeks", "Wochen"))
)
_HABITS = _adverbials(
    "every day = jeden Tag; every evening = jeden Abend; every week = jede Woche; "
    "in the morning = am Morgen; in the evening = am Abend; on the weekend = am Wochenende; "
    "in summer = im Sommer; in winter = im Winter"
)
NEVER = Adverbial("never", "nie", middle=True, late=True)
_OFTEN = tuple(
    each._replace(middle=True, late=True)
    for each in _adverbials(
        "often = oft; always = immer; sometimes = manchmal; rarely = selten; usually = meistens"
    )
)
_ALREADY = (
    Adverbial("already", "schon", middle=True, late=True),
    Adverbial("just", "gerade", middle=True),
)


def _circumstances(kinds: str, prepositions: dict[str, tuple[str, int]]) -> tuple[Adverbial, ...]:
    """'during the long trip' = 'während der langen Reise', for every noun and adjective."""
    return tuple(
        Adverbial(
            f"{en} the {adjective_en}{noun.en[0]}",
            f"{de} {DEFINITE[case][noun.gender]} {adjective_de}{noun.de[0][case]}",
            comma=True,
        )
        for noun in nouns_of(kinds)
        for en, (de, case) in prepositions.items()
        for adjective_en, adjective_de in [("", "")]
        + [
            (f"{each.en} ", f"{each.stem}{WEAK[case][noun.gender]} ")
            for each in ADJECTIVES_OF[noun.kind].single
        ]
    )


CAUSES = _circumstances("weather", {"because of": ("wegen", GEN), "despite": ("trotz", GEN)})
_EVENTS = _circumstances(
    "event", {"during": ("während", GEN), "after": ("nach", DAT), "before": ("vor", DAT)}
)

# Which adverbials go with which tense; each list is drawn from evenly, then its members.
ADVERBIALS: dict[str, tuple[tuple[Adverbial, ...], ...]] = {
    "simple": (_HABITS, _OFTEN, (NEVER,)),
    "progressive": (
        _adverbials("now = jetzt; today = heute; at the moment = im Moment; tonight = heute Abend"),
    ),
    "perfect": (_ALREADY, _adverbials("today = heute; this week = diese Woche")),
    # The English simple past always has one of these: 'they read' and 'they put' would
    # otherwise be present and past at once.
    "past": (
        _adverbials(
            "yesterday = gestern; last week = letzte Woche; last summer = letzten Sommer; "
            "last year = letztes Jahr; yesterday evening = gestern Abend"
        ),
        _DAYS,
        _AGO,
    ),
    "will": (
        _adverbials(
            "tomorrow = morgen; soon = bald; next week = nächste Woche; "
            "next summer = nächsten Sommer; tonight = heute Abend"
        ),
        _DAYS,
        _CLOCK,
        _AHEAD,
        _EVENTS,
    ),
    "modal": (
        _adverbials("today = heute; tomorrow = morgen; now = jetzt; tonight = heute Abend"),
        _DAYS,
        _CLOCK,
        _EVENTS,
    ),
}
ADVERBIALS["can"] = ADVERBIALS["modal"]

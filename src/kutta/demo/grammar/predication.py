"""Clauses with sense: a verb, somebody who does it, a tense and an adverbial that suits it."""

from random import Random

from kutta.demo.grammar.adverbials import ADVERBIALS, CAUSES, NEVER, Adverbial
from kutta.demo.grammar.clauses import Clause, Predicate
from kutta.demo.grammar.frames import FRAMES, PEOPLE_KINDS, describable
from kutta.demo.grammar.morphology import NOM, Noun, listed
from kutta.demo.grammar.phrases import IT, Phrase, noun_phrase, person, pick, pronoun_subject
from kutta.demo.grammar.verbs import BE, CAN, MODALS, VERBS, WEATHER, WILL, Modal, Verb

# A plan is a tense, or a modal with the infinitive.
Plans = tuple[str, ...]
PRESENT: Plans = ("simple", "progressive")
ANY: Plans = ("simple", "simple", "progressive", "perfect", "past", "will", "modal", "modal")
# The weather is a reason to work at home or to go out, hardly to buy a spoon.
OUTDOOR_FRAMES = ("where", "to", "city")
DELIBERATE = ("progressive", "will", "modal")
TEMPORARY = listed("tired hungry happy sad cold warm clean dirty")


def draw_subject(rng: Random, nouns: tuple[Noun, ...], definite: bool) -> Phrase:
    """One of these nouns, or a person by name or pronoun where persons are among them."""
    noun = pick(rng, nouns)
    role = "definite" if definite else "subject"
    if noun.kind not in PEOPLE_KINDS:
        return noun_phrase(rng, noun, NOM, role)
    return pronoun_subject(rng) if rng.random() < 0.2 else person(rng, noun, NOM, role)


def possible(verb: Verb, plan: str) -> str:
    """The plan, or the simple present where the verb does not allow it."""
    if verb.aspect == "state" or (verb.aspect == "instant" and plan == "progressive"):
        return "simple"
    return plan


def draw_clause(
    rng: Random,
    plans: Plans = ANY,
    *,
    verb: Verb | None = None,
    subject: Phrase | None = None,
    predicate: Predicate | None = None,
    adverbials: float = 0.45,
    negation: float = 0.15,
) -> Clause:
    """A clause; what is given is kept, the rest is drawn."""
    verb = verb or pick(rng, VERBS)
    plan = pick(rng, plans)
    negated = rng.random() < negation and verb.frame != "price"
    subject = subject or draw_subject(rng, verb.subjects, negated)
    if verb is BE and plan in ("past", "will") and predicate is None:
        plan, predicate = _passing_mood(rng, plan, subject)
    else:
        plan = possible(verb, plan)
    if predicate is None:
        predicate = FRAMES[verb.frame](rng, verb, subject, negated)
    adverbial = None
    lasting = verb.aspect == "state" and plan == "simple"
    if plan == "past" or (not lasting and rng.random() < adverbials):
        adverbial = draw_adverbial(rng, verb, plan, negated, predicate)
    return Clause(subject, verb, *tense_and_modal(rng, plan), negated, predicate, adverbial)


def tense_and_modal(rng: Random, plan: str) -> tuple[str, Modal | None]:
    if plan == "modal":
        return "simple", pick(rng, MODALS)
    alone = {"will": WILL, "can": CAN}.get(plan)
    return ("simple", alone) if alone else (plan, None)


def draw_adverbial(
    rng: Random, verb: Verb, plan: str, negated: bool, predicate: Predicate
) -> Adverbial | None:
    """'not always', 'never no' and 'never every' are left out: who knows what they mean."""
    outdoors = verb.aspect == "action" and verb.frame in OUTDOOR_FRAMES
    if outdoors and plan in DELIBERATE and rng.random() < 0.25:
        return pick(rng, CAUSES)
    adverbial = pick(rng, pick(rng, ADVERBIALS[plan]))
    unclear = adverbial is NEVER and predicate.fresh.startswith(("jed", "viel", "einig"))
    refused = (negated or predicate.kein) and adverbial.middle
    return None if unclear or refused else adverbial


def _passing_mood(rng: Random, plan: str, subject: Phrase) -> tuple[str, Predicate | None]:
    """'was tired yesterday', but nobody was clever yesterday."""
    moods = [each for each in describable(subject) if each.en in TEMPORARY]
    if not moods:
        return "simple", None
    mood = pick(rng, moods)
    return plan, Predicate(mood.en, rest=mood.de)


def draw_weather(rng: Random) -> Clause:
    """It is raining."""
    return Clause(IT, pick(rng, WEATHER), "progressive", None, False, Predicate())

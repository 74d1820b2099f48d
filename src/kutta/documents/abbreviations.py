"""Words that end in a dot within a sentence, by language: the data of the sentence splitter.

A word is written in lower case and without its last dot.
"""

from typing import NamedTuple


class Words(NamedTuple):
    """What the splitter knows of a language."""

    inner: frozenset[str] = frozenset()  # a name or a word follows: Dr. Smith
    before_number: frozenset[str] = frozenset()  # only if a number follows: No. 5, but not: No.
    either: frozenset[str] = frozenset()  # may also end a sentence: etc., Inc., p.m.
    starters: frozenset[str] = frozenset()  # words that then begin the next sentence
    ordinals: bool = False  # whether 3. is the third


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Titles and abbreviations that most languages of Europe share; languages not listed have only them.
_COMMON = _set("dr prof mr mrs ms mme st ing nr tel cf vs ca vol fig pp ed bd jr dipl gen col")

WORDS = {
    "en": Words(
        inner=_COMMON
        | _set(
            "messrs mt rev hon capt cmdr lt sgt gov sen rep pres supt e.g i.e viz approx dept est "
            "figs eq eqs ref refs univ ave blvd rd ft jan feb apr aug sept oct nov dec"
        ),
        before_number=_set("no nos p sec art ch min max mar jun jul"),
        either=_set("etc inc ltd co corp bros sr esq ph.d m.d b.c a.d a.m p.m al u.s u.k e.u"),
        starters=_set(
            "a after all also an and another as at both but by each for from he her here his how "
            "however i if in it its later many most my no not now on one our she since so some "
            "such that the their then there these they this those to under we what when where "
            "which while who why with yes you your"
        ),
    ),
    "de": Words(
        inner=_COMMON
        | _set(
            "hr fr frl fa abs abt allg bes bspw bzgl bzw dgl e.v evtl exkl ggf ggfs hrsg inkl jh "
            "jhd mind nachm vorm sog spez urspr verf vgl vorw zt zw z.b z.t d.h u.a u.u i.d.r "
            "o.ä o.g s.o s.u v.a i.a m.e geb gest mag stud str"
        ),
        before_number=_set("s art kap ziff min max mio mrd jan feb apr aug sept okt nov dez"),
        either=_set("usw etc u.v.m u.ä ff co mio mrd std min n.chr v.chr chr"),
        starters=_set(
            "aber alle als am an auch auf aus bei da dabei danach dann das dass dem den denn der "
            "deshalb dies diese dieser dieses doch du durch ein eine einen einer er es für hier "
            "ich ihr ihre im in ist ja jetzt kein keine man mein mit nach nein noch nun nur ob "
            "schon sein seine seit sie sind so trotzdem um und uns unser unter vom von vor wann "
            "war warum was weil wenn wer wie wir wird wo zu zum zur"
        ),
        ordinals=True,
    ),
    "fr": Words(
        inner=_COMMON
        | _set(
            "m mm mmes mlle mlles me mes mgr pr ste sts stes av boul env ex adj adv chap éd éds "
            "janv févr avr juil sept oct nov déc tél p.ex c.-à-d rte"
        ),
        before_number=_set("no nos n p art al t par sect §"),
        either=_set("etc cie h s.a j.-c"),
        starters=_set(
            "ainsi alors après au aucun aussi avec avant ce ceci cela celle celui ces cet cette "
            "chaque comme dans de depuis des donc du elle elles en ensuite est et il ils je la le "
            "les leur lorsque mais mon ne non nos notre nous on or ou où oui par pendant pour "
            "pourquoi puis quand que quel quelle qui sa sans selon ses si son sur toutefois tous "
            "tout très tu un une votre vous"
        ),
    ),
    "ro": Words(
        inner=_COMMON
        | _set(
            "dl d-l dle dna d-na d-ra dra d-nei d-lui dlui dv av acad arh asist conf lect lt mr sf "
            "str șos bl sc ap et jud mun com loc sat cca aprox resp ex ian feb apr aug sept oct "
            "nov dec a.c a.s op cit"
        ),
        before_number=_set("art alin lit pct pag pg p cap secț hot ord nr anexa mar iun iul"),
        either=_set("etc ș.a ș.a.m.d s.a.m.d i.hr d.hr s.r.l s.a"),
        starters=_set(
            "a acest această acesta aceasta aceste acești acolo acum aici am apoi ar are astfel "
            "atunci au ca când care cât ce cele chiar ci cine cu cum da dacă dar de deci deși din "
            "după e ea ei el ele era este eu fără iar în însă între la mai ne noi nu o pe pentru "
            "poate prin sau să se și și-a sub sunt și toate toți tu un unde unii va voi"
        ),
    ),
}


def words_of(language: str) -> Words:
    """What is known of a language code such as `de` or `de-AT`."""
    return WORDS.get(language.lower().replace("_", "-").split("-")[0], Words(inner=_COMMON))

"""How German and English words change their form: articles, endings, conjugation, numbers.

Tables are rows of cases (nominative, accusative, dative, genitive) by columns (masculine,
feminine, neuter, plural), as in a school grammar.
"""

from dataclasses import dataclass
from itertools import pairwise

NOM, ACC, DAT, GEN = range(4)
MASC, FEM, NEUT, PLURAL = range(4)
# A verb agrees with one of four subjects; 'wir' stands for 'sie' (they) too, the form is the same.
ICH, DU, ER, WIR = range(4)

Table = tuple[tuple[str, ...], ...]
FourForms = tuple[str, str, str, str]


def listed(words: str) -> tuple[str, ...]:
    """A list written as one line of words."""
    return tuple(words.split())


def table(rows: str, stem: str = "") -> Table:
    """Four rows separated by '/', four cells each; '-' is the empty ending."""
    return tuple(
        tuple(stem + ("" if cell == "-" else cell) for cell in row.split())
        for row in rows.split("/")
    )


DEFINITE = table("der die das die / den die das die / dem der dem den / des der des der")
DER_ENDINGS = "er e es e / en e es e / em er em en / es er es er"
EIN_ENDINGS = "- e - e / en e - e / em er em en / es er es er"
RELATIVE = table(
    "der die das die / den die das die / dem der dem denen / dessen deren dessen deren"
)
WEAK = table("e e e en / en e e en / en en en en / en en en en")
MIXED = table("er e es en / en e es en / en en en en / en en en en")
STRONG = table("er e es e / en e es e / em er em en / en er en er")

CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "an das": "ans",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}

VOWELS = frozenset("aeiouyäöü")


def prepositional(preposition: str, phrase: str) -> str:
    """Preposition and noun phrase, with the article melted in where German does: in dem -> im."""
    article, _, rest = phrase.partition(" ")
    melted = CONTRACTIONS.get(f"{preposition} {article}")
    return f"{melted} {rest}" if melted else f"{preposition} {phrase}"


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun with all its forms; `kind` is its place in the lexicon (person, food, ...)."""

    en: tuple[str, str]  # singular, plural; the plural is empty for mass nouns
    gender: int
    de: tuple[FourForms, FourForms]  # singular, plural by case
    kind: str

    @property
    def mass(self) -> bool:
        return not self.en[1]


def noun(entry: str, kind: str) -> Noun:
    """Read 'child/children das Kind Kinder'; '-' for no plural, 'weak' or a genitive at the end."""
    english, gender, german = _split_at_article(entry)
    singular, plural, *rest = german
    plural = "" if plural == "-" else plural
    note = rest[0] if rest else ""
    weak = note == "weak"
    oblique = plural if weak else singular
    genitive = plural if weak else note or genitive_singular(singular, gender)
    dative_plural = plural if not plural or plural[-1] in "ns" else plural + "n"
    base, _, irregular = english.partition("/")
    return Noun(
        en=(base, (irregular or english_plural(base)) if plural else ""),
        gender=gender,
        de=((singular, oblique, oblique, genitive), (plural, plural, dative_plural, plural)),
        kind=kind,
    )


def _split_at_article(entry: str) -> tuple[str, int, list[str]]:
    words = entry.split()
    at = next(i for i, word in enumerate(words) if word in DEFINITE[NOM][:PLURAL])
    return " ".join(words[:at]), DEFINITE[NOM].index(words[at]), words[at + 1 :]


def genitive_singular(word: str, gender: int) -> str:
    """-es after a sibilant or in a word of one syllable, -s otherwise; feminine nouns stay."""
    if gender == FEM:
        return word
    if word[-1] in VOWELS:
        return word + "s"
    return word + ("es" if word[-1] in "sßxz" or syllables(word) == 1 else "s")


def syllables(word: str) -> int:
    """Number of vowel groups."""
    letters = " " + word.lower()
    return sum(b in VOWELS and a not in VOWELS for a, b in pairwise(letters))


def compound(english: str, german: str, head: Noun) -> Noun:
    """'kitchen' + 'door': the first part takes its linking form, the head keeps its inflection."""

    def join(forms: FourForms) -> FourForms:
        a, b, c, d = (german + form.lower() if form else "" for form in forms)
        return a, b, c, d

    singular, plural = head.en
    return Noun(
        en=(f"{english} {singular}", f"{english} {plural}" if plural else ""),
        gender=head.gender,
        de=(join(head.de[0]), join(head.de[1])),
        kind=head.kind,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """`de` stands alone, `stem` takes endings: dunkel, but der dunkle Wald."""

    en: str
    en_comparative: str
    de: str
    stem: str
    de_comparative: str


def adjective(entry: str) -> Adjective:
    """Read 'dark/darker dunkel/dunkl dunkler'; without a comparative English uses 'more'."""
    english, german, comparative = entry.split()
    en, _, en_comparative = english.partition("/")
    de, _, stem = german.partition("/")
    return Adjective(en, en_comparative or f"more {en}", de, stem or de, comparative)


@dataclass(frozen=True, slots=True, eq=False)
class GermanVerb:
    """Forms of a verb; a separable prefix is kept apart because it travels on its own."""

    prefix: str
    infinitive: str
    present: FourForms
    participle: str
    auxiliary: FourForms  # haben or sein, for the perfect
    imperative: str

    @property
    def full_infinitive(self) -> str:
        return self.prefix + self.infinitive

    @property
    def zu_infinitive(self) -> str:
        """aufzumachen, but zu lesen."""
        if self.prefix:
            return f"{self.prefix}zu{self.infinitive}"
        return f"zu {self.infinitive}"


SEIN: FourForms = ("bin", "bist", "ist", "sind")
HABEN: FourForms = ("habe", "hast", "hat", "haben")
IRREGULAR_PRESENT: dict[str, FourForms] = {
    "sein": SEIN,
    "haben": HABEN,
    "wissen": ("weiß", "weißt", "weiß", "wissen"),
}


def german_verb(entry: str) -> GermanVerb:
    """Read 'auf·machen macht gemacht [sein]': infinitive, er-form, participle."""
    word, third, participle, *sein = entry.split()
    before, dot, after = word.partition("·")
    prefix, infinitive = (before, after) if dot else ("", word)
    return GermanVerb(
        prefix=prefix,
        infinitive=infinitive,
        present=IRREGULAR_PRESENT.get(infinitive) or present(infinitive, third),
        participle=prefix + participle,
        auxiliary=SEIN if sein else HABEN,
        imperative=imperative(infinitive, third),
    )


def present(infinitive: str, third: str) -> FourForms:
    """ich, du, er, wir from the infinitive and the er-form: lesen, liest."""
    ich = infinitive[:-1] if infinitive.endswith("en") else infinitive[:-1] + "e"
    stem = third.removesuffix("t")
    du = stem + ("t" if stem[-1] in "sßxz" else "st")
    return ich, du, third, infinitive


# Possible without, but hardly said: 'Dank!', 'Reis!'.
COMMAND_WITH_E = ("danken", "folgen", "begrüßen", "weinen", "reisen")


def imperative(infinitive: str, third: str) -> str:
    """Mach, warte, lies: e -> i is kept in the command, the umlaut (fährt) is not."""
    stem = infinitive.removesuffix("n").removesuffix("e")
    changed = third.removesuffix("t")
    if changed not in (stem, stem + "e") and not set("äöü") & set(changed) - set(stem):
        return changed
    needs_e = stem[-1] in "dt" or stem.endswith(("er", "chn")) or infinitive in COMMAND_WITH_E
    return stem + "e" if needs_e else stem


def english_plural(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def english_third(base: str) -> str:
    """reads, goes, cries; a particle stays behind: turns on."""
    verb, particle = _particle(base)
    third = {"have": "has", "go": "goes"}.get(verb) or english_plural(verb)
    return third + particle


def english_past(base: str) -> str:
    verb, particle = _particle(base)
    if verb.endswith("y") and verb[-2] not in VOWELS:
        return f"{verb[:-1]}ied{particle}"
    return f"{verb.removesuffix('e')}ed{particle}"


def english_ing(base: str) -> str:
    """lying, inviting, running: -ie, silent -e and the doubled consonant."""
    verb, particle = _particle(base)
    doubled = verb in DOUBLED or (syllables(verb) == 1 and _ends_in_short_syllable(verb))
    if verb.endswith("ie"):
        verb = verb[:-2] + "y"
    elif verb.endswith("e") and not verb.endswith("ee"):
        verb = verb[:-1]
    elif doubled:
        verb += verb[-1]
    return f"{verb}ing{particle}"


DOUBLED = ("forget", "begin")


def _ends_in_short_syllable(verb: str) -> bool:
    """Consonant, one vowel, consonant: run, but not read, help or play."""
    a, b, c = verb[-3:].rjust(3)
    return a not in VOWELS and b in VOWELS and c not in VOWELS and c not in "wx"


def _particle(base: str) -> tuple[str, str]:
    verb, space, particle = base.partition(" ")
    return verb, space + particle


ENGLISH_SMALL = listed(
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
ENGLISH_TENS = listed("- - twenty thirty forty fifty sixty seventy eighty ninety")
GERMAN_SMALL = listed(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf "
    "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
)
GERMAN_TENS = listed("- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")


def english_number(n: int) -> str:
    """0 to 99: twenty-one."""
    tens, ones = divmod(n, 10)
    if tens < 2:
        return ENGLISH_SMALL[n]
    return ENGLISH_TENS[tens] + (f"-{ENGLISH_SMALL[ones]}" if ones else "")


def german_number(n: int) -> str:
    """0 to 99, the ones first: einundzwanzig."""
    tens, ones = divmod(n, 10)
    if tens < 2:
        return GERMAN_SMALL[n]
    first = "ein" if ones == 1 else GERMAN_SMALL[ones]
    return (f"{first}und" if ones else "") + GERMAN_TENS[tens]

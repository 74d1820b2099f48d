"""Whether text is in the language that the settings name, by frequent function words.

Only a plain contradiction counts. A language that is not in the table is not checked.
"""

import re
from collections import Counter
from collections.abc import Sequence

from kutta.config.data import language_of

# Frequent words that are rare in the other languages of the table. No word is listed twice.
FUNCTION_WORDS = {
    "cs": ("Czech", "že není jsem jako jsou který být bylo také při podle jsme už jeho nebo"),
    "de": (
        "German",
        "der das und ist nicht ein eine einen einem mit sich auf auch ich sie wir von",
    ),
    "en": ("English", "the and are that this with for you she his have not they it be at from to"),
    "es": ("Spanish", "el los las y su está muy pero esto fue más qué también ese eso yo hay ella"),
    "fr": ("French", "les des est et dans une pas qui vous nous je au avec sur pour elle ce cette"),
    "it": ("Italian", "che di è della non sono nel gli dei per ha anche questo più alla sul"),
    "nl": ("Dutch", "het een van niet ik dat zijn op voor hij ze maar ook deze naar wordt"),
    "pl": ("Polish", "nie się jest że jak tym był jego dla przez czy są już być"),
    "pt": ("Portuguese", "os não uma em ele você são isso foi seu ao muito mas pelo"),
    "ro": ("Romanian", "și şi în să că nu cu din care pe pentru sunt fost această prin sau"),
    "ru": ("Russian", "и в не на что он она это как но был из его мы вы они же было если"),
    "sv": ("Swedish", "och att det som är inte för av jag har på ett han eller"),
}
_LANGUAGE = {word: code for code, (_, words) in FUNCTION_WORDS.items() for word in words.split()}
_WORD = re.compile(r"[^\W\d_]+")
_LINES, _WORDS = 20, 3  # fewer lines, or fewer different words of a language, say too little
_SHARE = 0.2  # of the lines have such words even where most sentences have two or three words


def doubt(sources: Sequence[str], targets: Sequence[str], source: str, target: str) -> str:
    """One sentence where a sample of pairs is not in the languages named, else an empty string."""
    found = main_language(sources), main_language(targets)
    wrong = [
        f"the {side} text seems to be {FUNCTION_WORDS[code][0]}, but data.{side} = {named!r}"
        for side, code, named in zip(("source", "target"), found, (source, target), strict=True)
        if code and language_of(named) in FUNCTION_WORDS and language_of(named) != code
    ]
    if not wrong:
        return ""
    swapped = found == (language_of(target), language_of(source))
    way_out = "the two sides may be swapped" if swapped else "check the files and these settings"
    return f"{' and '.join(wrong)}; {way_out}"


def main_language(lines: Sequence[str]) -> str:
    """The language of most of the lines that have function words; empty if that is not plain."""
    votes, seen = Counter[str](), set[str]()
    for line in lines:
        words = _WORD.findall(line.lower().replace("@@ ", ""))  # of subwords: their words
        known = [word for word in words if word in _LANGUAGE]
        seen.update(known)
        hits = Counter(_LANGUAGE[word] for word in known).most_common(2)
        if hits and hits[0][1] > hits[-1][1] * (len(hits) - 1):  # no tie
            votes[hits[0][0]] += 1
    written = sum(1 for line in lines if line.strip())
    for code, count in votes.most_common(1):
        various = sum(_LANGUAGE[word] == code for word in seen) >= _WORDS
        if various and count >= max(_LINES, _SHARE * written) and count > votes.total() / 2:
            return code
    return ""

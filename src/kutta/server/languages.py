"""Languages: their codes, their names, and which one a text is in."""

import copy
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

from babel import Locale, UnknownLocaleError
from py3langid.langid import MODEL_FILE, LanguageIdentifier


class Detected(NamedTuple):
    """A language with the confidence that a text is in it, in percent."""

    language: str
    confidence: float


def name_of(code: str) -> str:
    """The English name of a language, or its code if it has none."""
    try:
        return Locale.parse(code, sep="-").get_language_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def match(asked: str, known: Iterable[str]) -> str | None:
    """The known code for what a client calls a language: en, EN, en-US and en_US are en."""
    codes = {code.lower(): code for code in known}
    wanted = asked.strip().replace("_", "-").lower()
    return codes.get(wanted) or codes.get(wanted.partition("-")[0])


class Detector:
    """Tells which of some languages a text is in."""

    def __init__(self, codes: Sequence[str]) -> None:
        model = copy.copy(_identifier())  # set_languages changes what it is called on
        self.codes = sorted(set(codes) & set(model.labels)) or sorted(codes)
        self._model = model if set(self.codes) <= set(model.labels) else None
        if self._model:
            self._model.set_languages(self.codes)

    def detect(self, text: str) -> list[Detected]:
        """The languages, the likeliest first; languages unknown to the detector share evenly."""
        if self._model is None:
            return [Detected(code, 100.0 / len(self.codes)) for code in self.codes]
        ranked = cast(list[tuple[str, float]], self._model.rank(text))
        return [Detected(code, round(100 * probability, 1)) for code, probability in ranked]


@cache
def _identifier() -> Any:
    return cast(Any, LanguageIdentifier).from_model_file(MODEL_FILE, norm_probs=True)

"""Moses tokenization and detokenization, and splitting compounds at hyphens."""

import importlib.metadata
import re
from typing import Any

from kutta.errors import InputError
from kutta.metrics.score import Lines


def moses_tokenize(lines: Lines, language: str) -> list[str]:
    """Tokenise raw text as Moses' tokenizer.perl does (with its `&quot;` for a quote)."""
    from sacremoses import MosesTokenizer  # slow to import, and rarely needed

    moses: Any = MosesTokenizer(lang=_checked(language))
    return [moses.tokenize(line, return_str=True) for line in lines]


def moses_detokenize(lines: Lines, language: str) -> list[str]:
    """Detokenise Moses tokens as Moses' detokenizer.perl does."""
    from sacremoses import MosesDetokenizer

    moses: Any = MosesDetokenizer(lang=_checked(language))
    return [moses.detokenize(line.split()) for line in lines]


def moses_rules(language: str) -> str:
    """The language whose rules Moses applies to this one: its own, or English."""
    return language if language in moses_languages() else "en"


def moses_signature(language: str) -> str:
    """The tokenizer, its language and its version, for signatures."""
    return f"moses-{language}-sacremoses-{importlib.metadata.version('sacremoses')}"


def moses_languages() -> list[str]:
    """The languages for which Moses has rules."""
    from sacremoses.corpus import NonbreakingPrefixes

    return sorted(set(NonbreakingPrefixes().available_langs.values()))


def split_hyphens(line: str) -> str:
    """Split compounds as published WMT14 En-De scores do: a-b is a ##AT##-##AT## b; a-b-c once."""
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line, flags=re.ASCII)


def _checked(language: str) -> str:
    if language not in moses_languages():
        raise InputError(
            f"The Moses tokenizer has no rules for the language '{language}'; choose one of "
            f"{', '.join(moses_languages())} (Moses uses 'en' for all others)."
        )
    return language

"""Normalising, filtering and splitting sentence pairs."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence

from kutta.corpora.recipes import Cleaning

# Romanian is written with a comma below; older text has the cedilla that Unicode offered first.
LETTERS = {"ro": str.maketrans("şţŞŢ", "șțȘȚ")}


def respell(text: str, language: str) -> str:
    """The text in the current orthography of its language."""
    return text.translate(LETTERS[language]) if language in LETTERS else text


def tidy(raw: bytes, language: str) -> str | None:
    """A sentence in NFC with single spaces; None if it is not text."""
    try:
        text = unicodedata.normalize("NFC", raw.decode("utf-8"))
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else respell(" ".join(text.split()), language)


def fault(row: Sequence[str | None], cleaning: Cleaning) -> str:
    """Why a row is dropped; empty if it is kept."""
    if None in row:
        return "not text"
    words = [text.count(" ") + 1 if text else 0 for text in row if text is not None]
    if min(words) == 0:
        return "empty"
    if max(words) > cleaning.max_words:
        return "too long"
    return "unequal" if max(words) > cleaning.max_ratio * min(words) else ""


def held_out(english: str, one_in: int) -> str:
    """The split of a sentence, by a hash of its words: independent of order and corpus size.

    Case and punctuation do not count: "Run!" and "Run." are in the same split.
    """
    words = " ".join(re.findall(r"\w+", english.casefold()))
    number = int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big")
    return {0: "test", 1: "valid"}.get(number % one_in, "train")

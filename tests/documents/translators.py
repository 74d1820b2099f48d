"""Translators for tests: functions from a list of sentences to a list of translations."""


def upper(sentences: list[str]) -> list[str]:
    return [sentence.upper() for sentence in sentences]


class Dictionary:
    """Knows the translations of whole strings, and remembers what it was asked for."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = known
        self.asked: list[str] = []

    def __call__(self, sentences: list[str]) -> list[str]:
        self.asked += sentences
        return [self.known[sentence] for sentence in sentences]


def fail(sentences: list[str]) -> list[str]:
    raise AssertionError(f"there is nothing to translate, but asked for {sentences}")

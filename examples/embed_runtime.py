"""Translate inside a program of your own, without PyTorch.

kutta export RUN mine-int8 --precision int8
python examples/embed_runtime.py mine-int8 < lines.txt

It needs `pip install kutta` only. The model is loaded once; translations appear while further lines
are read, one for each line and in the same order, in memory that does not grow with the text.
"""

import sys
from collections.abc import Iterable, Iterator

from kutta import InputError, Translator


class Service:
    """A model that stays in memory: the part that you would put into your own program."""

    def __init__(self, folder: str) -> None:
        self.translator = Translator.load(folder)  # checks the files; no torch is imported
        self.source, self.target = self.translator.languages

    def one(self, text: str) -> str:
        """The translation of a sentence, as soon as possible."""
        return self.translator.translate([text])[0]

    def stream(self, lines: Iterable[str]) -> Iterator[str]:
        """The translations of many lines, with all cores."""
        return self.translator.translate_stream(lines)


def main(folder: str) -> None:
    try:
        service = Service(folder)
    except InputError as error:  # one sentence: what is wrong, and what to do
        sys.exit(f"embed_runtime: {error}")
    print(f"{service.source} -> {service.target}", file=sys.stderr)
    for translation in service.stream(line.rstrip("\n") for line in sys.stdin):
        print(translation, flush=True)
    assert "torch" not in sys.modules


if __name__ == "__main__":
    main(sys.argv[1])

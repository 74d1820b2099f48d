"""A stream of lines, in which a line that is too long for the model is split into sentences."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from kutta.documents.sentences import Fits, SplitText, split_text

Stream = Callable[[Iterable[str]], Iterator[str]]


def translate_lines(
    lines: Iterable[str], translate: Stream, is_one: Fits, language: str, fits: Fits
) -> Iterator[str]:
    """One translation for each line, in order.

    A line goes to the model as it is if `is_one` says so, else in sentences that fit. Lines are
    read only as the translator asks for them.
    """
    waiting: deque[SplitText] = deque()

    def sentences() -> Iterator[str]:
        for line in lines:
            whole = SplitText([line], ["", ""])
            waiting.append(whole if is_one(line) else split_text(line, language, fits))
            yield from waiting[-1].sentences

    done: list[str] = []
    for translation in translate(sentences()):
        yield from _without_words(waiting)
        done.append(translation)
        if len(done) == len(waiting[0].sentences):
            yield waiting.popleft().join(done).text
            done = []
    yield from _without_words(waiting)


def _without_words(waiting: deque[SplitText]) -> Iterator[str]:
    """The next lines that have nothing to translate."""
    while waiting and not waiting[0].sentences:
        yield waiting.popleft().join([]).text

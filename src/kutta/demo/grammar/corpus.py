"""The built-in English-German corpus: sentences of a small grammar, drawn by a seed.

The German follows from the English alone, so a perfect translator can reach a perfect score; the
space is far too large for a test sentence to have been seen in training.

From words to text: lexicon and verbs (data), morphology (forms), determiners, phrases, places,
frames and predication (sense), clauses (word order), gaps, sentences.
"""

from collections.abc import Callable, Iterator, Set
from itertools import islice
from pathlib import Path
from random import Random

from kutta.demo.grammar.lexicon import NAMES
from kutta.demo.grammar.phrases import pick
from kutta.demo.grammar.sentences import (
    Pair,
    attempt,
    command,
    coordination,
    existence,
    identity,
    purpose,
    relative_object,
    relative_subject,
    report,
    statement,
    subordination,
    wh_question,
    yes_no_question,
)
from kutta.files import write_text

SHORTEST, LONGEST = 4, 14  # words of an English sentence

# How often each kind of sentence is drawn.
PRODUCTIONS: dict[Callable[[Random], Pair], int] = {
    statement: 30,
    yes_no_question: 9,
    wh_question: 9,
    command: 6,
    coordination: 4,
    subordination: 14,
    report: 9,
    relative_subject: 6,
    relative_object: 5,
    attempt: 3,
    purpose: 2,
    existence: 3,
    identity: 2,
}
_WEIGHTED = tuple(each for each, weight in PRODUCTIONS.items() for _ in range(weight))


def _natural(english: str) -> bool:
    """Of readable length, and no name said twice where one would say 'she'."""
    return SHORTEST <= english.count(" ") + 1 <= LONGEST and not any(
        english.count(name) > 1 for name in NAMES
    )


def _sentences(seed: int) -> Iterator[Pair]:
    """Endless, each English sentence once."""
    rng = Random(seed)
    seen: set[str] = set()
    while True:
        pair = pick(rng, _WEIGHTED)(rng)
        if pair[0] not in seen and _natural(pair[0]):
            seen.add(pair[0])
            yield pair


def generate(count: int, seed: int, exclude: Set[str] = frozenset()) -> list[Pair]:
    """`count` pairs with distinct English sentences, none of them in `exclude`."""
    sentences = (pair for pair in _sentences(seed) if pair[0] not in exclude)
    return list(islice(sentences, count))


def write_corpus(folder: Path, train: int, valid: int, test: int, seed: int) -> None:
    """Write {train,valid,test}.{en,de}; no sentence of one split is in another, on either side."""
    sentences = _sentences(seed)
    taken: set[str] = set()
    splits: dict[str, list[Pair]] = {}
    for split, count in (("test", test), ("valid", valid), ("train", train)):
        # Two English sentences may share their German: 'he reads', 'he is reading'.
        splits[split] = list(islice((pair for pair in sentences if pair[1] not in taken), count))
        taken.update(german for _, german in splits[split])
    for split in ("train", "valid", "test"):  # test.de comes last: where it is, all is
        for side, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in splits[split])
            write_text(folder / f"{split}.{language}", lines)

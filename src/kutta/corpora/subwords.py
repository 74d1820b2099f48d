"""Text as published for Multi30k: lower case, Moses tokens, subwords of a joint BPE."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from rich.progress import Progress

from kutta.corpora.bpe import codes_file, learn_merges, splitter
from kutta.corpora.recipes import Subwords
from kutta.corpora.writer import SplitWriter
from kutta.metrics.moses import moses_tokenize

CODES = "codes.bpe"


def write_subwords(
    raw: Path, splits: Mapping[str, int], subwords: Subwords, folder: Path, bar: Progress
) -> dict[str, dict[str, Any]]:
    """Split the text in `raw` into subwords, in `folder`/first-second for each pair of languages.

    `splits` has the name and the lines of each split, the training text first. Returns the outcome
    of each split, by its subfolder and name.
    """
    outcome: dict[str, dict[str, Any]] = {}
    task = bar.add_task("splitting", total=len(subwords.pairs) * sum(splits.values()), unit="lines")
    tokens = {
        (name, language): tokenized((raw / f"{name}.{language}").read_text("utf-8"), language)
        for language in dict.fromkeys(language for pair in subwords.pairs for language in pair)
        for name in splits
    }
    for pair in subwords.pairs:
        place = folder / "-".join(pair)
        place.mkdir()
        training = (line for language in pair for line in tokens[next(iter(splits)), language])
        merges = learn_merges(training, subwords.merges)
        (place / CODES).write_text(codes_file(merges), encoding="utf-8")
        split = splitter(merges)
        for name, lines in splits.items():
            with ExitStack() as stack:
                text = SplitWriter(stack, place / name, pair)
                for row in zip(*(tokens[name, language] for language in pair), strict=True):
                    text.write([split(line) for line in row])
            outcome[f"{place.name}/{name}"] = text.outcome(lines, Counter())
            bar.advance(task, lines)
    bar.remove_task(task)
    return outcome


def tokenized(text: str, language: str) -> list[str]:
    """The lines of a text in lower case, with normalised punctuation, tokenised."""
    from sacremoses import MosesPunctNormalizer  # slow to import, and rarely needed

    # perl_parity: a lone ’ becomes a double quote, as in the script of that time.
    normalize = cast(
        Callable[[str], str],
        MosesPunctNormalizer(language, perl_parity=True).normalize,  # pyright: ignore[reportUnknownMemberType]
    )
    # Moses' script sees the end of the line, so it also moves a final full stop out of quotes.
    lines = [normalize(f"{line.lower()}\n") for line in text.split("\n")[:-1]]
    return [" ".join(line.split()) for line in moses_tokenize(lines, language)]

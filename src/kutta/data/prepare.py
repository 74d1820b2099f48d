"""From a corpus to the input of training: tokenizers, a training store and a validation store."""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from kutta.config import DataConfig
from kutta.data.corpus import count_pairs, read_chunks, read_lines
from kutta.data.encode import Encoded, Limits, Tally, encoder, larger, word_counter
from kutta.data.language import doubt
from kutta.data.store import PairChunk, write_chunks
from kutta.data.tokenizer import BPE, SENTENCES_TO_LEARN_FROM, Pretokenized, Tokenizer, Tokenizers
from kutta.data.workers import cores, in_order
from kutta.errors import InputError


@dataclass(frozen=True)
class Report:
    """The result of `prepare`: counts of pairs and vocabulary sizes."""

    train: Tally
    valid: Tally
    source_vocab: int
    target_vocab: int
    shared_vocab: bool

    def __str__(self) -> str:
        shared = ", shared" if self.train.what == "pairs" else ""
        vocabulary = (
            f"{self.source_vocab:,} tokens{shared}"
            if self.shared_vocab
            else f"{self.source_vocab:,} source tokens, {self.target_vocab:,} target tokens"
        )
        return f"train: {self.train}\nvalid: {self.valid}\nvocabulary: {vocabulary}"

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"train": self.train.to_dict(), "valid": self.valid.to_dict()}


def expected_vocabulary(data: DataConfig) -> int:
    """The expected vocabulary size before the text is prepared, for estimates."""
    split = 10_000 if data.tokenizer == "split" else 0  # that of PTB, and of Multi30k's merges
    return max(data.vocab_size, split)


def prepare(
    data: DataConfig,
    out: Path,
    tokenizer_folder: Path,
    tokenizers: Tokenizers | None = None,
    processes: int | None = None,
) -> Report:
    """Write `out/train.arrow` and `out/valid.arrow`, and the tokenizers into `tokenizer_folder`.

    Given `tokenizers` are used unchanged and none are learned. The corpus is read as a stream;
    sources are truncated to data.max_source tokens before lengths are checked. Large corpora are
    spread over `processes` (all cores if None); the files do not depend on their number.
    """
    # Find a missing or damaged file now, not in an hour, and text of another language.
    samples = {name: next(read_chunks(data, name)).decode() for name in (data.train, data.valid)}
    for name, sample in samples.items():
        if found := doubt(*sample, data.source, data.target):
            warnings.warn(f"{Path(data.dir) / name}: {found}.", stacklevel=2)
            break
    processes = processes or cores()
    if tokenizers is None:
        tokenizers = learn_tokenizers(data, processes)
    longest, cut = data.max_length, data.max_source
    for_train = Limits(longest, data.max_ratio, cut, one_sided=not data.source)
    # The validation set is not made easier: only pairs that are too long are dropped.
    for_valid = Limits(longest, max_source=cut, drop_empty=False)
    tallies: list[Tally] = []
    for part, name, limits in (("train", data.train, for_train), ("valid", data.valid, for_valid)):
        tally = Tally(what="pairs" if data.source else "lines")
        encoded = in_order(partial(encoder, tokenizers, limits), read_chunks(data, name), processes)
        write_chunks(out / f"{part}.arrow", _non_empty(encoded, tally, name), larger(tokenizers))
        tallies.append(tally)
    tokenizers.save(tokenizer_folder)
    sizes = len(tokenizers.source), len(tokenizers.target)
    return Report(tallies[0], tallies[1], *sizes, tokenizers.shared)


def learn_tokenizers(data: DataConfig, processes: int = 1) -> Tokenizers:
    """The tokenizers of the training corpus: one shared by both sides, or one for each."""
    both = [(0, 1)] if data.shared_vocab else [(0,), (1,)]
    sides = both if data.source else [(1,)]  # a language model has only a target
    if data.vocabulary and (data.tokenizer != "split" or len(data.vocabulary) != len(sides)):
        raise InputError(
            f"data.vocabulary lists {len(data.vocabulary)} dict.txt, but data.tokenizer = "
            f'"{data.tokenizer}" and data.shared_vocab = {str(data.shared_vocab).lower()}; with '
            '"split", list one for a shared vocabulary, otherwise two: source and target.'
        )

    def counts(of: tuple[int, ...]) -> Counter[str]:
        total = Counter[str]()
        chunks = read_chunks(data, data.train)
        for counted in in_order(partial(word_counter, of), chunks, processes):
            total.update(counted)
        return total

    def sample(of: tuple[int, ...]) -> Iterator[str]:
        every = math.ceil(count_pairs(data, data.train) * len(of) / SENTENCES_TO_LEARN_FROM)
        for chunk in islice(read_chunks(data, data.train), 0, None, every):
            for pair in zip(*chunk.decode(), strict=True):
                yield from (pair[side] for side in of)

    if data.vocabulary:
        made: list[Tokenizer] = [read_dictionary(Path(data.dir) / name) for name in data.vocabulary]
    elif data.tokenizer == "split":
        made = [Pretokenized.of(counts(of)) for of in sides]
    else:
        made = [BPE.learn(sample(of), data.vocab_size) for of in sides]
    return Tokenizers(made[0], made[-1])


def read_dictionary(path: Path) -> Pretokenized:
    """The vocabulary of a fairseq `dict.txt`: a token and its count on every line."""
    tokens: dict[str, None] = {}
    for number, line in enumerate(read_lines(path), start=1):
        token, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if token.split() != [token] or not count.isdecimal() or token in tokens:
            problem = "repeats a token" if token in tokens else "is not a token and its count"
            raise InputError(f"{path}, line {number} {problem}; it must be a fairseq dict.txt.")
        tokens[token] = None
    if not tokens:
        raise InputError(f"{path} has no tokens; it must be a fairseq dict.txt.")
    return Pretokenized(list(tokens))


def _non_empty(encoded: Iterable[Encoded], tally: Tally, name: str) -> Iterator[PairChunk]:
    """The pairs, or an error if there are none, raised before the store is renamed into place."""
    for chunk in encoded:
        tally.add(chunk.tally)
        yield chunk.source, chunk.target
    if not tally.kept:
        raise InputError(
            f"No pairs of the corpus {name!r} are left ({tally}); "
            "raise data.max_length or data.max_ratio, or check the files."
        )

"""From a corpus to what training reads: tokenizers, a store of training and one of validation."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from kutta.config import DataConfig
from kutta.data.corpus import Block, count_pairs, read_blocks, read_lines
from kutta.data.encode import Encoded, Limits, Tally, encoder, larger, word_counter
from kutta.data.store import Chunk, write_chunks
from kutta.data.tokenizer import BPE, SENTENCES_TO_LEARN_FROM, Split, Tokenizer, Tokenizers
from kutta.data.workers import cores, in_order
from kutta.errors import InputError


@dataclass(frozen=True)
class Report:
    """What `prepare` did."""

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
        return {
            "train": self.train.to_dict(),
            "valid": self.valid.to_dict(),
            "source_vocab": self.source_vocab,
            "target_vocab": self.target_vocab,
            "shared_vocab": self.shared_vocab,
        }


# Taken to be the words of split text before it is read, where its config expects no more: those of
# PTB, and Multi30k's merges.
_SPLIT_VOCABULARY = 10_000


def expected_vocabulary(data: DataConfig) -> int:
    """How many tokens to expect before the text is prepared, for an estimate."""
    split = max(data.vocab_size, _SPLIT_VOCABULARY)
    return data.vocab_size if data.tokenizer == "bpe" else split


def prepare(
    data: DataConfig,
    out: Path,
    tokenizer_folder: Path,
    tokenizers: Tokenizers | None = None,
    processes: int | None = None,
) -> Report:
    """Write `out/train.arrow` and `out/valid.arrow`, and the tokenizers into `tokenizer_folder`.

    `tokenizers` given are used as they are, none is learned. The corpus is read as a stream;
    sources are cut to data.max_source tokens before lengths are looked at. Large corpora are spread
    over `processes` (all cores if None); the files do not depend on their number.
    """
    for name in (data.train, data.valid):  # a missing or broken file shows now, not in an hour
        next(_blocks(data, name)).decode()
    processes = processes or cores()
    if tokenizers is None:
        tokenizers = learn_tokenizers(data, processes)
    longest, cut = data.max_length, data.max_source
    for_train = Limits(longest, data.max_ratio, cut, one_sided=not data.source)
    # Validation is not made easier than it is: only what is too long to handle goes.
    for_valid = Limits(longest, max_source=cut, drop_empty=False)
    what = "pairs" if data.source else "lines"
    of_train, of_valid = Tally(what=what), Tally(what=what)
    for part, name, limits, tally in (
        ("train", data.train, for_train, of_train),
        ("valid", data.valid, for_valid, of_valid),
    ):
        encoded = in_order(partial(encoder, tokenizers, limits), _blocks(data, name), processes)
        write_chunks(out / f"{part}.arrow", _some(encoded, tally, name), larger(tokenizers))
    tokenizers.save(tokenizer_folder)
    return Report(
        of_train,
        of_valid,
        len(tokenizers.source),
        len(tokenizers.target),
        tokenizers.shared,
    )


def learn_tokenizers(data: DataConfig, processes: int = 1) -> Tokenizers:
    """The tokenizers of the training corpus: one for both sides together, or one for each."""
    both = [(0, 1)] if data.shared_vocab else [(0,), (1,)]
    sides = both if data.source else [(1,)]  # a language model reads what it writes
    dictionaries = [Path(data.dir) / name for name in data.vocabulary]
    if dictionaries and (data.tokenizer != "split" or len(dictionaries) != len(sides)):
        raise InputError(
            f"{len(dictionaries)} dict.txt given (data.vocabulary), but data.tokenizer = "
            f'"{data.tokenizer}" and data.shared_vocab = {str(data.shared_vocab).lower()}; a '
            'dict.txt goes with "split": one for a shared vocabulary, else two, source and target.'
        )

    def counts(of: tuple[int, ...]) -> Counter[str]:
        total = Counter[str]()
        blocks = _blocks(data, data.train)
        for counted in in_order(partial(word_counter, of), blocks, processes):
            total.update(counted)
        return total

    def sample(of: tuple[int, ...]) -> Iterator[str]:
        blocks = _blocks(data, data.train)
        pairs = count_pairs(Path(data.dir), data.train, data.source, data.target)
        every = math.ceil(pairs * len(of) / SENTENCES_TO_LEARN_FROM)
        some = islice(blocks, 0, None, every)
        pairs_of = (zip(*block.decode(), strict=True) for block in some)
        return (pair[side] for pairs in pairs_of for pair in pairs for side in of)

    if dictionaries:
        made: list[Tokenizer] = [read_dictionary(path) for path in dictionaries]
    elif data.tokenizer == "split":
        made = [Split.of(counts(of)) for of in sides]
    else:
        made = [BPE.learn(sample(of), data.vocab_size) for of in sides]
    return Tokenizers(made[0], made[-1])


def read_dictionary(path: Path) -> Split:
    """The vocabulary of a fairseq `dict.txt`: a token and its count on every line."""
    tokens: dict[str, None] = {}
    for number, line in enumerate(read_lines(path), start=1):
        token, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if token.split() != [token] or not count.isdecimal() or token in tokens:
            problem = "repeats a token" if token in tokens else "is not a token and its count"
            raise InputError(f"{path}, line {number} {problem}; give a fairseq dict.txt.")
        tokens[token] = None
    if not tokens:
        raise InputError(f"{path} has no tokens; give a dict.txt as fairseq writes it.")
    return Split(list(tokens))


def _blocks(data: DataConfig, name: str) -> Iterator[Block]:
    return read_blocks(Path(data.dir), name, data.source, data.target)


def _some(encoded: Iterable[Encoded], tally: Tally, name: str) -> Iterator[Chunk]:
    """The pairs, and an error where there is none: raised before the store gets its name."""
    for block in encoded:
        tally.add(block.tally)
        yield block.source, block.target
    if not tally.kept:
        raise InputError(
            f"No pair of the corpus {name!r} is left ({tally}); "
            "raise data.max_length or data.max_ratio, or check the files."
        )

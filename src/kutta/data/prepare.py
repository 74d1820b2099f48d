"""From a corpus to what training reads: tokenizers, a store of training and one of validation."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kutta.data.corpus import read_pairs
from kutta.data.store import write_store
from kutta.data.tokenizer import BPE, Pair, Split, Tokenizer, Tokenizers
from kutta.errors import InputError


@dataclass
class Tally:
    """How many pairs were read, cut and kept, and why the others were dropped."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter[str])
    cut: int = 0
    what: str = "pairs"  # or lines, of a language model

    def __str__(self) -> str:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.dropped.most_common())
        dropped = f"; dropped: {reasons}" if reasons else ""
        cut = f", {self.cut:,} sources cut" if self.cut else ""
        return f"{self.read:,} {self.what} read{cut}, {self.kept:,} kept{dropped}"

    def to_dict(self) -> dict[str, Any]:
        counts = {"read": self.read, "cut": self.cut, "kept": self.kept}
        return counts | {"dropped": dict(self.dropped)}


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


def cut_sources(pairs: Iterable[Pair], tally: Tally, max_source: int) -> Iterator[Pair]:
    """The encoded pairs, each source with its first `max_source` tokens only (0: all of them)."""
    for source, target in pairs:
        cut = max_source > 0 and len(source) > max_source
        tally.cut += cut
        yield (source[:max_source] if cut else source), target


# Taken to be the words of split text before it is read: those of PTB, and Multi30k's merges.
_SPLIT_VOCABULARY = 10_000


def expected_vocabulary(tokenizer: Literal["bpe", "split"], vocab_size: int) -> int:
    """How many tokens to expect before the text is prepared, for an estimate."""
    return vocab_size if tokenizer == "bpe" else _SPLIT_VOCABULARY


def filter_pairs(
    pairs: Iterable[Pair],
    tally: Tally,
    max_length: int,
    max_ratio: float | None = None,
    drop_empty: bool = True,
    one_sided: bool = False,
) -> Iterator[Pair]:
    """The encoded pairs that pass, counted in `tally` with the reasons of those that do not.

    A pair goes where a side is longer than `max_length` tokens, is empty, or is more than
    `max_ratio` times as long as the other (most often a wrong alignment). In a `one_sided` corpus
    (of a language model) only the target counts.
    """
    for pair in pairs:
        tally.read += 1
        reason = _why_dropped(pair, max_length, max_ratio, drop_empty, one_sided)
        if reason is None:
            tally.kept += 1
            yield pair
        else:
            tally.dropped[reason] += 1


def prepare(
    folder: Path,
    source: str,
    target: str,
    *,
    out: Path,
    tokenizer_folder: Path,
    train: str = "train",
    valid: str = "valid",
    tokenizer: Literal["bpe", "split"] = "bpe",
    vocab_size: int = 10_000,
    shared_vocab: bool = True,
    max_length: int = 256,
    max_source: int = 0,
    max_ratio: float | None = None,
    dictionaries: tuple[Path, ...] = (),
    tokenizers: Tokenizers | None = None,
) -> Report:
    """Write `out/train.arrow` and `out/valid.arrow`, and the tokenizers into `tokenizer_folder`.

    `dictionaries` are fairseq files for "split": one if shared, else source and target.
    `tokenizers` given are used as they are, none is learned. The corpus is read as a stream;
    sources are cut to `max_source` tokens (0: not cut) before lengths are looked at.
    """
    for name in (train, valid):
        next(read_pairs(folder, name, source, target))  # a missing file shows now, not in an hour
    if tokenizers is None:
        tokenizers = learn_tokenizers(
            folder, train, source, target, tokenizer, vocab_size, shared_vocab, dictionaries
        )
    what = "pairs" if source else "lines"
    of_train, of_valid = Tally(what=what), Tally(what=what)
    train_pairs = _encoded(read_pairs(folder, train, source, target), tokenizers)
    valid_pairs = _encoded(read_pairs(folder, valid, source, target), tokenizers)
    train_pairs = cut_sources(train_pairs, of_train, max_source)
    valid_pairs = cut_sources(valid_pairs, of_valid, max_source)
    kept_train = filter_pairs(train_pairs, of_train, max_length, max_ratio, one_sided=not source)
    # Validation is not made easier than it is: only what is too long to handle goes.
    kept_valid = filter_pairs(valid_pairs, of_valid, max_length, drop_empty=False)
    larger = max(len(tokenizers.source), len(tokenizers.target))
    write_store(out / "train.arrow", _some(kept_train, of_train, train), larger)
    write_store(out / "valid.arrow", _some(kept_valid, of_valid, valid), larger)
    tokenizers.save(tokenizer_folder)
    return Report(
        of_train,
        of_valid,
        len(tokenizers.source),
        len(tokenizers.target),
        tokenizers.shared,
    )


def learn_tokenizers(
    folder: Path,
    train: str,
    source: str,
    target: str,
    kind: Literal["bpe", "split"],
    vocab_size: int,
    shared_vocab: bool,
    dictionaries: tuple[Path, ...] = (),
) -> Tokenizers:
    """The tokenizers of the training corpus: one for both sides together, or one for each."""
    both = [(0, 1)] if shared_vocab else [(0,), (1,)]
    sides = both if source else [(1,)]  # a language model reads what it writes
    if dictionaries and (kind != "split" or len(dictionaries) != len(sides)):
        raise InputError(
            f"{len(dictionaries)} dict.txt given (data.vocabulary), but data.tokenizer = "
            f'"{kind}" and data.shared_vocab = {str(shared_vocab).lower()}; a dict.txt goes with '
            '"split": one for a shared vocabulary, else two, source and target.'
        )

    def lines(of: tuple[int, ...]) -> Iterator[str]:
        return (pair[i] for pair in read_pairs(folder, train, source, target) for i in of)

    if dictionaries:
        made: list[Tokenizer] = [Split.from_dictionary(path) for path in dictionaries]
    elif kind == "split":
        made = [Split.learn(lines(of)) for of in sides]
    else:
        made = [BPE.learn(lines(of), vocab_size) for of in sides]
    return Tokenizers(made[0], made[-1])


def _encoded(texts: Iterable[tuple[str, str]], tokenizers: Tokenizers) -> Iterator[Pair]:
    source, target = tokenizers.source, tokenizers.target
    return ((source.encode(one), target.encode(other)) for one, other in texts)


def _some(pairs: Iterable[Pair], tally: Tally, name: str) -> Iterator[Pair]:
    """`pairs`, and an error where there is none: raised before the store gets its name."""
    yield from pairs
    if not tally.kept:
        raise InputError(
            f"No pair of the corpus {name!r} is left ({tally}); "
            "raise data.max_length or data.max_ratio, or check the files."
        )


def _why_dropped(
    pair: Pair, max_length: int, max_ratio: float | None, drop_empty: bool, one_sided: bool
) -> str | None:
    source, target = len(pair[0]), len(pair[1])
    if source > max_length:
        return f"with a source too long (> {max_length} tokens)"
    if target > max_length:
        return f"with a target too long (> {max_length} tokens)"
    if drop_empty and not source and not one_sided:
        return "with an empty source"
    if drop_empty and not target:
        return "with an empty target"
    if one_sided:
        return None
    if max_ratio is not None and max(source, target) > max_ratio * min(source, target):
        return f"with one side longer than {max_ratio:g} x the other"
    return None

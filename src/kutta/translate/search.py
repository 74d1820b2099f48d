"""Beam search over ids; a beam of one is greedy search."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kutta.config import DecodeConfig
from kutta.data.tokenizer import BOS, EOS, PAD
from kutta.translate.hypothesis import (
    Floats,
    Hypothesis,
    Integers,
    excluded,
    length_limit,
    permitted,
)
from kutta.translate.scorer import Scorer

# What is computed together. More gains no speed: sentences of a greedy search then differ more in
# length, and their keys and values no longer fit into the processor's cache.
MOST_ROWS = 128  # hypotheses
MOST_SENTENCES = 64

REFILL = 8  # sentences start when an eighth of the places is free, so that many are read together

Sentence = tuple[int, Sequence[int]]  # a number, and ids with EOS
Found = Iterator[tuple[int, list[Hypothesis]]]


def beam_search(
    scorer: Scorer, sources: Sequence[Sequence[int]], decode: DecodeConfig, n_best: int = 1
) -> list[list[Hypothesis]]:
    """The up to `n_best` best translations of each sentence, ids with EOS, best first.

    A hypothesis ends when EOS is among the `beam` best continuations. A sentence is finished as
    soon as `beam` hypotheses have ended, as in fairseq, even if a live one could still overtake
    them by its length penalty; with `exact_stop` it is finished when none can. At `max_length`
    tokens EOS is forced, so every sentence has a translation. `min_length` and `no_repeat_ngram`
    exclude continuations, see `permitted`. Of equal candidates the one from the better hypothesis
    comes first, then the one with the lower id.
    """
    found = dict(search(scorer, enumerate(sources), decode, n_best))
    return [found[number] for number in range(len(sources))]


def search(
    scorer: Scorer,
    sentences: Iterable[Sentence],
    decode: DecodeConfig,
    n_best: int = 1,
    most: int = MOST_SENTENCES,
) -> Found:
    """The same for numbered sentences, each as soon as it is found.

    A sentence that is finished makes room for the next. Give the longest first: as many are
    translated at once as fill `batch_tokens` if all were as long as the next, but `most`.
    """
    waiting, live = _Waiting(iter(sentences), decode, most), _Live(scorer, decode, n_best)
    live.fill(waiting)
    while live.numbers:
        yield from live.step()
        live.fill(waiting)


def most_at_once(beam: int) -> int:
    """The most sentences that are translated at once."""
    return min(MOST_ROWS // beam, MOST_SENTENCES)


@dataclass
class _Waiting:
    """The sentences that are not yet being translated."""

    sentences: Iterator[Sentence]
    decode: DecodeConfig
    most: int  # at once
    following: Sentence | None = None

    def take(self, busy: int) -> list[Sentence]:
        """The next ones, as many as there is room for beside those that are `busy`."""
        taken: list[Sentence] = []
        while (following := self.following or next(self.sentences, None)) is not None:
            room = self.decode.batch_tokens // len(following[1]), most_at_once(self.decode.beam)
            self.following = following
            if busy + len(taken) >= max(min(*room, self.most), 1):
                break
            taken.append(following)
            self.following = None
        return taken


class _Live:
    """The K hypotheses of each of b sentences, best first.

    numbers: those of the sentences, None where one has finished; widths: lengths of the sources;
    ended: the finished hypotheses; limits, lengths (b,); scores (b, K), -inf in an empty place;
    tokens (b, K, t), with PAD before BOS where a sentence came later than others.
    """

    def __init__(self, scorer: Scorer, decode: DecodeConfig, n_best: int) -> None:
        self.decode, self.n_best = decode, n_best
        self.decoding = scorer.start(decode.beam)
        self.numbers: list[int | None] = []
        self.widths: list[int] = []
        self.ended: list[list[Hypothesis]] = []
        self.limits = self.lengths = np.zeros(0, np.int64)
        self.scores = np.zeros((0, decode.beam), np.float32)
        self.tokens = np.zeros((0, decode.beam, 1), np.int64)
        self.widest = 0  # the longest source since columns were selected

    def fill(self, waiting: _Waiting) -> None:
        """Let others take the places of finished sentences, when there are enough of these."""
        free = [column for column, number in enumerate(self.numbers) if number is None]
        if len(free) < max(1, len(self.numbers) // REFILL) and self.numbers:
            return
        busy = [column for column, number in enumerate(self.numbers) if number is not None]
        new = waiting.take(len(busy))
        widest = max([len(ids) for _, ids in new] + [self.widths[column] for column in busy] + [0])
        if len(new) != len(free) or 4 * widest < 3 * self.widest:
            self._select(busy, len(busy) + len(new))
            free, self.widest = list(range(len(busy), len(self.numbers))), widest
        if new:
            self.widest = max(self.widest, widest)
            self._enter(free, new)

    def _select(self, columns: list[int], total: int) -> None:
        """Keep these columns, and have `total`."""
        more = total - len(columns)
        self.decoding.select(columns, total)
        self.numbers = [self.numbers[column] for column in columns] + [None] * more
        self.widths = [self.widths[column] for column in columns] + [0] * more
        self.ended = [self.ended[column] for column in columns] + [[] for _ in range(more)]
        longest = 1 + int(self.lengths[columns].max(initial=0))
        self.limits, self.lengths, self.scores, self.tokens = (
            np.concatenate([x[columns], np.zeros((more, *x.shape[1:]), x.dtype)])
            for x in (self.limits, self.lengths, self.scores, self.tokens[:, :, -longest:])
        )

    def _enter(self, columns: list[int], new: Sequence[Sentence]) -> None:
        """Start to translate sentences in these columns."""
        self.decoding.enter(columns, [ids for _, ids in new])
        for column, (number, ids) in zip(columns, new, strict=True):
            self.numbers[column], self.widths[column], self.ended[column] = number, len(ids), []
            self.limits[column] = length_limit(ids, self.decode)
        self.lengths[columns] = 0
        self.scores[columns] = -math.inf
        self.scores[columns, 0] = 0.0
        self.tokens[columns] = PAD
        self.tokens[columns, :, -1] = BOS

    def step(self) -> Found:
        """Extend all hypotheses by a token; yield the sentences that are finished by it."""
        decode, beam = self.decode, self.decode.beam
        tokens = self.tokens.reshape(-1, self.tokens.shape[2])
        count = beam + excluded(decode, tokens)
        following = self.decoding.step(self.tokens[:, :, -1], count)
        lengths, limits = (np.repeat(x, beam) for x in (self.lengths, self.limits))
        values, words = permitted(following, tokens, lengths, limits, decode)
        totals, parents, words = _candidates(values, words, self.scores)
        ends = words == EOS
        for row, rank in np.argwhere((ends & np.isfinite(totals))[:, :beam]).tolist():
            prefix = self._prefix(row, parents[row, rank])
            one = Hypothesis.of(prefix, float(totals[row, rank]), decode.length_penalty)
            self.ended[row].append(one)
        # At most K of the 2K candidates end, one for each parent, so K others continue.
        onward = np.argsort(ends, axis=1, kind="stable")[:, :beam]
        totals, parents, words = (
            np.take_along_axis(x, onward, axis=1) for x in (totals, parents, words)
        )
        for row, best in enumerate(totals[:, 0].tolist()):
            if (number := self.numbers[row]) is not None and self._finished(row, best):
                yield number, self._best(row)
                self.numbers[row] = None
        rows = np.arange(len(self.tokens))[:, None]
        self.tokens = np.concatenate([self.tokens[rows, parents], words[:, :, None]], axis=2)
        self.scores, self.lengths = totals, self.lengths + 1
        self.decoding.extend(parents)

    def _prefix(self, row: int, rank: int) -> list[int]:
        """The tokens of a hypothesis, without BOS."""
        return self.tokens[row, rank, self.tokens.shape[2] - self.lengths[row] :].tolist()

    def _finished(self, row: int, best: float) -> bool:
        """Whether a sentence is done, of which the best live hypothesis is this likely."""
        found, penalty = self.ended[row], self.decode.length_penalty
        if best == -math.inf:
            return True
        if not self.decode.exact_stop:
            return len(found) >= self.decode.beam
        if len(found) < self.n_best:
            return False
        # A log-probability only falls, so the score is highest at one of the possible lengths'
        # ends: EOS next, or EOS at the limit.
        ends = (int(self.lengths[row]) + 2, int(self.limits[row]) + 1)
        bound = max(best / length**penalty for length in ends)
        return sorted(h.score for h in found)[-self.n_best] >= bound

    def _best(self, row: int) -> list[Hypothesis]:
        """The best ended hypotheses; without any, the best unfinished one.

        There is none only if log-probabilities are not finite.
        """
        found = self.ended[row] or [Hypothesis(self._prefix(row, 0), -math.inf, -math.inf)]
        return sorted(found, key=lambda h: -h.score)[: self.n_best]


def _candidates(
    values: Floats, words: Integers, scores: Floats
) -> tuple[Floats, Integers, Integers]:
    """The best continuations of the K live hypotheses of each sentence, best first.

    values and words (b*K, n), scores (b, K) -> scores, parents and words, each (b, 2K). At least
    the K best and the K best that are not EOS are those of all continuations.
    """
    b, beam = scores.shape
    # K continuations of a hypothesis and its EOS are enough: others cannot be among the K that
    # continue, nor before an EOS that ends. They are ranked before their score is added, because
    # the addition may round different values to the same number.
    order = np.argsort(-values, axis=1, kind="stable")[:, : beam + 1]
    values, words = (np.take_along_axis(x, order, axis=1) for x in (values, words))
    each = values.shape[1]
    totals = (values.reshape(b, beam, each) + scores[:, :, None]).reshape(b, -1)
    order = np.argsort(-totals, axis=1, kind="stable")[:, : 2 * beam]
    totals = np.take_along_axis(totals, order, axis=1)
    return totals, order // each, np.take_along_axis(words.reshape(b, -1), order, axis=1)

"""Shortest, longest, and nothing twice: the rules of generation against plain enumeration."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kutta.config import DecodeConfig, Sampling
from kutta.data.tokenizer import BOS, EOS, PAD, UNK
from kutta.translate.hypothesis import Hypothesis, permitted, repeating
from kutta.translate.sampling import sample
from kutta.translate.scorer import best_of
from kutta.translate.search import beam_search
from tests.translate.scripts import Row, Scripted

VOCABULARY = 10
WORDS = [UNK, *range(4, VOCABULARY)]  # what a translation may consist of

few = settings(max_examples=40, deadline=None)
lengths = st.integers(0, 6)
orders = st.integers(0, 4)


class Noise(Scripted):
    """A scorer whose probabilities are drawn for every source and prefix, by a seed."""

    def __init__(self, seed: int = 0, vocabulary: int = VOCABULARY) -> None:
        super().__init__(lambda source, prefix: self.drawn((*source, *prefix)), vocabulary)
        self.seed = seed

    def drawn(self, row: tuple[int, ...]) -> NDArray[np.float32]:
        drawn = np.random.default_rng([self.seed, *row]).normal(scale=2.0, size=self.vocabulary)
        return torch.tensor(drawn, dtype=torch.float).log_softmax(-1).numpy()


def after(table: NDArray[np.float32], prefix: list[int], limit: int, decode: DecodeConfig) -> Any:
    """What `permitted` makes of a table (V,) after a prefix."""
    every = best_of(table[None].copy(), len(table))
    arrays = np.array([[BOS, *prefix]]), np.array([len(prefix)]), np.array([limit])
    return permitted(every, *arrays, decode)[0][0]


def rules(limit: int, least: int, n: int, beam: int = 1, penalty: float = 0.0) -> DecodeConfig:
    """Settings that are not checked: `least` above `limit` is refused before a search begins."""
    return DecodeConfig.model_construct(
        beam=beam,
        length_penalty=penalty,
        max_length=limit,
        min_length=least,
        no_repeat_ngram=n,
    )


def sources(sentences: list[list[int]]) -> list[list[int]]:
    """The same with EOS."""
    return [[*row, EOS] for row in sentences]


def ngrams(tokens: list[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def may_follow(prefix: list[int], limit: int, least: int, n: int, words: list[int]) -> set[int]:
    """What the rules allow after a prefix, from their wording."""
    if len(prefix) >= limit:
        return {EOS}
    fresh = {word for word in words if not twice(prefix, word, n)}
    return fresh | {EOS} if len(prefix) >= least or not fresh else fresh


def twice(prefix: list[int], word: int, n: int) -> bool:
    """Whether `word` completes an n-gram that the prefix has already (n = 0: any may repeat)."""
    return 0 < n <= len(prefix) + 1 and ngrams([*prefix, word], n)[-1] in ngrams(prefix, n)


# ---- the rules themselves --------------------------------------------------------------------


@few
@given(
    rows=st.integers(0, 9).flatmap(
        lambda t: st.lists(
            st.lists(st.sampled_from([UNK, 4, 5]), min_size=t, max_size=t), min_size=1, max_size=4
        )
    ),
    n=st.integers(1, 5),
)
def test_what_would_repeat_is_what_a_walk_over_the_prefix_finds(
    rows: list[list[int]], n: int
) -> None:
    found = repeating(np.array([[BOS, *row] for row in rows]), n)
    for row, banned in zip(rows, found.tolist(), strict=True):
        # For n = 1 the BOS in front is found too; nothing ever chooses it.
        assert set(banned) - {PAD, BOS} == {word for word in WORDS if twice(row, word, n)}


@few
@given(
    prefix=st.lists(st.sampled_from([UNK, 4, 5, 6]), max_size=8),
    limit=st.integers(1, 9),
    least=lengths,
    n=orders,
    seed=st.integers(0, 99),
)
def test_the_rules_leave_the_probabilities_of_what_is_allowed_alone(
    prefix: list[int], limit: int, least: int, n: int, seed: int
) -> None:
    table = Noise(seed, 7).drawn((1,))
    found = after(table, prefix, limit, rules(0, least, n))
    allowed = may_follow(prefix, limit, least, n, [UNK, 4, 5, 6])
    assert {word for word in range(7) if math.isfinite(found[word])} == allowed
    assert all(found[word] == table[word] for word in allowed)


def test_without_rules_only_the_marks_are_ruled_out() -> None:
    table = Noise(1).drawn((1,))
    expected = table.copy()
    expected[[PAD, BOS]] = -math.inf
    assert np.array_equal(after(table, [4, 4, 4], 9, DecodeConfig()), expected)


def test_the_limit_is_above_all_other_rules() -> None:
    found = after(Noise(1).drawn((1,)), [4, 5], 2, rules(2, 100, 1))
    assert np.flatnonzero(np.isfinite(found)).tolist() == [EOS]


# ---- the searches under the rules ------------------------------------------------------------


def all_sequences(
    scorer: Noise, source: list[int], limit: int, least: int, n: int
) -> list[tuple[float, list[int]]]:
    """Every translation the rules allow, with its log-probability."""
    words = [word for word in WORDS if word < scorer.vocabulary]
    found: list[tuple[float, list[int]]] = []

    def grow(prefix: list[int], score: float) -> None:
        table = scorer.drawn((*source, EOS, BOS, *prefix))
        for word in sorted(may_follow(prefix, limit, least, n, words)):
            if word == EOS:
                found.append((score + float(table[EOS]), prefix))
            else:
                grow([*prefix, word], score + float(table[word]))

    grow([], 0.0)
    return sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("least", "n"), [(0, 0), (2, 0), (0, 1), (0, 2), (3, 2), (4, 1), (4, 3), (9, 2)]
)
def test_a_beam_that_holds_everything_finds_all_the_rules_allow(least: int, n: int) -> None:
    scorer = Noise(3, vocabulary=6)
    expected = all_sequences(scorer, [4, 5], 4, least, n)
    (found,) = beam_search(scorer, sources([[4, 5]]), rules(4, least, n, beam=130), n_best=130)
    assert [h.tokens for h in found] == [tokens for _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


@few
@given(
    seed=st.integers(0, 999), limit=st.integers(1, 12), least=lengths, n=orders, long=st.booleans()
)
def test_greedy_is_a_beam_of_one_and_takes_the_likeliest_allowed(
    seed: int, limit: int, least: int, n: int, long: bool
) -> None:
    source = [4, 5, 6] if long else [7]
    scorer, tokens = Noise(seed), list[int]()
    while True:
        table = scorer.drawn((*source, EOS, BOS, *tokens))
        allowed = sorted(may_follow(tokens, limit, least, n, WORDS))
        word = max(allowed, key=lambda word: float(table[word]))
        if word == EOS:
            break
        tokens.append(word)
    ((best,),) = beam_search(scorer, sources([source]), rules(limit, least, n))
    assert best.tokens == tokens
    ((one,),) = beam_search(scorer, sources([source]), rules(limit, least, n, penalty=1.0))
    assert (one.tokens, one.log_probability) == (best.tokens, best.log_probability)


def check(hypothesis: Hypothesis, limit: int, least: int, n: int) -> None:
    assert min(least, limit) <= len(hypothesis.tokens) <= limit
    assert not n or max(Counter(ngrams(hypothesis.tokens, n)).values(), default=1) == 1
    assert not set(hypothesis.tokens) & {PAD, BOS, EOS}
    assert math.isfinite(hypothesis.score)


batches = st.lists(
    st.lists(st.integers(4, VOCABULARY - 1), min_size=1, max_size=5), min_size=1, max_size=4
)


# No n-gram rule can leave nothing to say before all the seven words were used: see `least`.
@few
@given(
    batch=batches,
    beam=st.integers(1, 4),
    limit=st.integers(1, 15),
    least=st.integers(0, len(WORDS)),
    n=orders,
    seed=st.integers(0, 99),
)
def test_every_translation_keeps_the_rules_and_does_not_depend_on_the_batch(
    batch: list[list[int]], beam: int, limit: int, least: int, n: int, seed: int
) -> None:
    scorer, decode = Noise(seed), rules(limit, least, n, beam, 0.6)
    together = beam_search(scorer, sources(batch), decode, beam)
    drawn = sample(scorer, sources(batch), Sampling(seed=seed), decode)
    for row, (found, one) in enumerate(zip(together, drawn, strict=True)):
        assert found
        for hypothesis in [*found, one]:
            check(hypothesis, limit, least, n)
        alone = sources(batch[row : row + 1])
        assert beam_search(scorer, alone, decode, beam) == [found]
        assert sample(scorer, alone, Sampling(seed=seed), decode, [row]) == [one]


@pytest.mark.parametrize("beam", [1, 3])
def test_where_nothing_is_left_to_say_a_translation_ends(beam: int) -> None:
    """Three words and none twice: a translation of nine cannot be, one of three can."""
    scorer = Noise(5, vocabulary=6)
    decode = rules(20, 9, 1, beam, 1.0)
    (found,) = beam_search(scorer, sources([[4], [5]])[:1], decode, beam)
    assert {frozenset(h.tokens) for h in found} == {frozenset({UNK, 4, 5})}
    (drawn,) = sample(scorer, sources([[4]]), Sampling(), decode)
    assert sorted(drawn.tokens) == [UNK, 4, 5]
    assert all(math.isfinite(h.score) for h in [*found, drawn])


def test_the_shortest_gives_way_to_the_default_limit() -> None:
    ((best,),) = beam_search(Noise(2), sources([[4, 5]]), DecodeConfig(min_length=500, beam=1))
    assert len(best.tokens) == 2 * 2 + 20


def test_what_is_ruled_out_leaves_its_share_to_the_others() -> None:
    def thrice(source: Row, prefix: Row) -> NDArray[np.float32]:
        """4 with 1/2, 5 with 1/3, 6 with 1/6, always."""
        table = np.full(VOCABULARY, -math.inf, np.float32)
        table[[4, 5, 6]] = np.log([1 / 2, 1 / 3, 1 / 6])
        table[EOS] = -30.0
        return table

    count = 3000
    drawn = sample(Scripted(thrice, VOCABULARY), sources([[4]] * count), Sampling(), rules(2, 0, 1))
    pairs = Counter(tuple(h.tokens) for h in drawn)
    shares = {4: 1 / 2, 5: 1 / 3, 6: 1 / 6}
    for (one, other), times in pairs.items():
        p = shares[one] * shares[other] / (1 - shares[one])
        assert abs(times / count - p) <= 4 * math.sqrt(p * (1 - p) / count)
    assert len(pairs) == 6

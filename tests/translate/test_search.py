"""Beam search, greedy search and sampling, against enumeration and uncached arithmetic."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from kutta.config import DecodeConfig, ModelConfig, Sampling
from kutta.data.tokenizer import BOS, EOS, PAD, UNK
from kutta.model import TranslationModel
from kutta.model.transformer import build_model
from kutta.translate import search as search_module
from kutta.translate import workers
from kutta.translate.hypothesis import Hypothesis
from kutta.translate.pytorch import SingleModel, highest
from kutta.translate.sampling import sample
from kutta.translate.scorer import Ensemble, Scorer
from kutta.translate.search import Found, Sentence, beam_search
from tests.translate.scripts import Row, Scripted, rows_of

VOCABULARY = 12
A, B, C = 4, 5, 6


def tiny(seed: int = 0, vocabulary: int = VOCABULARY, **settings: object) -> TranslationModel:
    """An untrained model, louder than at initialisation: the source and the prefix matter."""
    torch.manual_seed(seed)
    sizes = {"d_model": 8, "ffn": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    config = ModelConfig.model_validate(sizes | {"solver": "euler"} | settings)
    model = build_model(config, vocabulary, vocabulary, True).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(6 if ".cross.attention." in name else 1.5)
        model.output_weight[EOS] *= 2  # or no hypothesis would end before the limit
    return model


def sources(lengths: Sequence[int], seed: int = 0, vocabulary: int = VOCABULARY) -> list[list[int]]:
    """Random sentences of these lengths, each with EOS."""
    generator = torch.Generator().manual_seed(seed)
    batch = torch.full((len(lengths), max(lengths) + 1), PAD)
    for row, length in enumerate(lengths):
        batch[row, :length] = torch.randint(4, vocabulary, (length,), generator=generator)
        batch[row, length] = EOS
    return rows_of(batch)


@torch.no_grad()
def teacher_forced(model: TranslationModel, source: list[int], prefix: list[int]) -> Tensor:
    """Log-probabilities after each position of BOS + prefix, without any cache: (T, V)."""
    hidden = model.decode(torch.tensor([[BOS, *prefix]]), model.encode(torch.tensor([source])))
    return model.project(hidden)[:, 0].log_softmax(-1)


def log_probability(model: TranslationModel, source: list[int], tokens: list[int]) -> float:
    table = teacher_forced(model, source, tokens)
    return sum(float(table[i, token]) for i, token in enumerate([*tokens, EOS]))


Distribution = Callable[[int, tuple[int, ...]], dict[int, float]]


class Script(Scripted):
    """Follows a function of (sentence, prefix) to probabilities; the first id is the sentence."""

    def __init__(self, distribution: Distribution) -> None:
        super().__init__(self.of_row, VOCABULARY)
        self.distribution = distribution

    def of_row(self, source: Row, prefix: Row) -> NDArray[np.float32]:
        table = np.full(VOCABULARY, -math.inf, np.float32)
        if source:  # a column that is not in use has none
            found = self.distribution(source[0], prefix[1:])
            for token, probability in found.items():
                table[token] = math.log(probability) if probability > 0 else probability
        return table


def numbered(count: int) -> list[list[int]]:
    """Sources of three tokens and EOS, the first of which is the number of the sentence."""
    return [[number, A, A, EOS] for number in range(count)]


# ---- against enumeration and uncached arithmetic --------------------------------------------


@pytest.mark.parametrize("penalty", [-0.5, 0.0, 0.6, 1.0, 2.0])
def test_a_beam_that_holds_everything_finds_the_ranking_of_all_sequences(penalty: float) -> None:
    model, limit = tiny(3, vocabulary=6), 4
    source = sources([3], vocabulary=6)
    scored: list[tuple[float, list[int]]] = []
    for length in range(limit + 1):
        for tokens in itertools.product([UNK, 4, 5], repeat=length):
            logp = log_probability(model, source[0], list(tokens))
            scored.append((logp / (length + 1) ** penalty, list(tokens)))
    scored.sort(reverse=True)
    decode = DecodeConfig(beam=130, length_penalty=penalty, max_length=limit)
    (found,) = beam_search(SingleModel(model), source, decode, n_best=130)
    assert [h.tokens for h in found] == [tokens for _, tokens in scored]
    assert [h.score for h in found] == pytest.approx([score for score, _ in scored], rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_beam_one_is_greedy(seed: int) -> None:
    model = tiny(seed)
    source = sources([1, 7, 4, 7, 2], seed)
    expected: list[list[int]] = []
    for row in range(len(source)):
        one, tokens = source[row], []
        while len(tokens) < 15:
            following = teacher_forced(model, one, tokens)[-1]
            following[[PAD, BOS]] = -math.inf
            if (token := int(following.argmax())) == EOS:
                break
            tokens.append(token)
        expected.append(tokens)
    for penalty in (0.0, 1.0):
        decode = DecodeConfig(beam=1, length_penalty=penalty, max_length=15)
        found = beam_search(SingleModel(model), source, decode)
        assert [h.tokens for (h,) in found] == expected


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"decoder_solver": "rk2"},
        {"decoder_solver": "rk4", "field": "san/ffn"},
        {"decoder_solver": "multistep", "relative_positions": 0},
    ],
    ids=str,
)
def test_the_reordered_cache_gives_what_uncached_decoding_gives(
    settings: dict[str, object],
) -> None:
    model = tiny(**settings)
    source = sources([5, 1, 9, 3, 5, 8])
    found = beam_search(SingleModel(model), source, DecodeConfig(max_length=12), n_best=4)
    assert len({len(h.tokens) for hypotheses in found for h in hypotheses}) > 2
    for row, hypotheses in enumerate(found):
        for h in hypotheses:
            expected = log_probability(model, source[row], h.tokens)
            assert h.log_probability == pytest.approx(expected, abs=1e-4)
            assert h.score == pytest.approx(expected / (len(h.tokens) + 1) ** 0.6, abs=1e-4)


def test_n_best_is_sorted_and_distinct() -> None:
    scorer, decode = SingleModel(tiny()), DecodeConfig(beam=6)
    for hypotheses in beam_search(scorer, sources([3, 6, 9]), decode, n_best=6):
        assert len(hypotheses) == 6
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert len({tuple(h.tokens) for h in hypotheses}) == 6


def test_a_shorter_n_best_is_the_head_of_a_longer_one() -> None:
    scorer, source, decode = SingleModel(tiny()), sources([3, 6, 9]), DecodeConfig(beam=5)
    longer = beam_search(scorer, source, decode, n_best=5)
    assert beam_search(scorer, source, decode, n_best=2) == [h[:2] for h in longer]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_batch_gives_what_its_sentences_give_alone(beam: int) -> None:
    scorer, source = SingleModel(tiny(2)), sources([2, 11, 5, 1, 5])
    decode = DecodeConfig(beam=beam, max_length=14)
    together = beam_search(scorer, source, decode, n_best=beam)
    for row, hypotheses in enumerate(together):
        (single,) = beam_search(scorer, [source[row]], decode, n_best=beam)
        assert [h.tokens for h in hypotheses] == [h.tokens for h in single]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in single], abs=1e-5)


def test_no_sentence_is_no_work() -> None:
    empty: list[list[int]] = []
    assert beam_search(SingleModel(tiny()), empty, DecodeConfig()) == []
    assert sample(SingleModel(tiny()), empty, Sampling(), DecodeConfig()) == []


# ---- the rules of the search ----------------------------------------------------------------


def search(distribution: Distribution, beam: int, **options: float) -> list[Hypothesis]:
    """All hypotheses of one scripted sentence."""
    usual = {"length_penalty": 0.0, "max_length": 10}
    decode = DecodeConfig.model_validate({"beam": beam} | usual | options)
    return beam_search(Script(distribution), sources([3]), decode, n_best=beam)[0]


def test_the_beam_keeps_a_worse_start_that_ends_better() -> None:
    def garden_path(_: int, prefix: tuple[int, ...]) -> dict[int, float]:
        if not prefix:
            return {A: 0.6, B: 0.4}
        return {EOS: 0.9, C: 0.1} if prefix == (B,) else {EOS: 0.3, A: 0.3, B: 0.2, C: 0.2}

    assert search(garden_path, beam=1)[0].tokens == [A]
    best = search(garden_path, beam=2)[0]
    assert best.tokens == [B]
    assert best.log_probability == pytest.approx(math.log(0.4 * 0.9))


def test_a_sentence_is_done_when_as_many_hypotheses_as_the_beam_have_ended() -> None:
    script = Script(lambda _, prefix: {EOS: 0.6, A: 0.4})
    (found,) = beam_search(script, sources([3]), DecodeConfig(beam=3, length_penalty=0.0), n_best=3)
    assert [h.tokens for h in found] == [[], [A], [A, A]]
    assert script.steps == 3


def test_eos_below_the_beam_does_not_end_a_hypothesis() -> None:
    found = search(lambda _, p: {A: 0.4, B: 0.35, EOS: 0.25}, beam=1, max_length=4)
    assert [h.tokens for h in found] == [[A, A, A, A]]


def test_sentences_leave_the_batch_one_by_one() -> None:
    """Sentence n wants n tokens of its own; the others end meanwhile."""

    def own(sentence: int, prefix: tuple[int, ...]) -> dict[int, float]:
        done = len(prefix) == sentence
        return {EOS: 0.9, C: 0.1} if done else {A + sentence % 3: 0.9, C + 1: 0.1}

    found = beam_search(Script(own), numbered(5), DecodeConfig(beam=2, length_penalty=0.0))
    assert [h.tokens for (h,) in found] == [[A + n % 3] * n for n in range(5)]


def test_the_limit_forces_an_end_for_every_sentence() -> None:
    def endless(_: int, prefix: tuple[int, ...]) -> dict[int, float]:
        return {A: 0.9, B: 0.09, EOS: 0.01}

    decode = DecodeConfig(beam=2, max_length=7)
    for found in beam_search(Script(endless), sources([3, 5]), decode, n_best=2):
        assert [len(h.tokens) for h in found] == [7, 7]
        assert found[0].log_probability == pytest.approx(7 * math.log(0.9) + math.log(0.01))
    by_default = beam_search(Script(endless), sources([3, 5]), DecodeConfig(beam=2))
    assert [len(h.tokens) for (h,) in by_default] == [2 * 3 + 20, 2 * 5 + 20]


def test_pad_and_bos_are_never_chosen() -> None:
    found = search(lambda _, p: {PAD: 0.6, BOS: 0.3, A: 0.08, EOS: 0.02}, beam=2, max_length=3)
    assert {token for h in found for token in h.tokens} == {A}


def test_of_equal_candidates_the_lowest_id_wins() -> None:
    flat = dict.fromkeys(range(VOCABULARY), 1 / VOCABULARY)
    assert search(lambda _, p: flat, beam=1)[0].tokens == [UNK] * 10
    found = search(lambda _, p: flat, beam=3, max_length=2)
    assert [h.tokens for h in found] == [[], [UNK], [UNK, UNK]]


@pytest.mark.parametrize("number", [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_that_breaks_down_still_gives_a_line(number: float, beam: int) -> None:
    def broken(source: Row, prefix: Row) -> NDArray[np.float32]:
        table = np.full(VOCABULARY, number if len(prefix) > 2 else -math.inf, np.float32)
        if len(prefix) <= 2:
            table[[A, B]] = np.log([0.8, 0.2])
        return table

    script = Scripted(broken, VOCABULARY)
    (found,) = beam_search(script, sources([3]), DecodeConfig(beam=beam), n_best=beam)
    assert found == [Hypothesis([A, A], -math.inf, -math.inf)]
    (drawn,) = sample(script, sources([3]), Sampling(), DecodeConfig())
    assert (len(drawn.tokens), drawn.score) == (2, -math.inf)


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_highest_takes_the_first_of_equals(rows: list[list[int]], count: int) -> None:
    values, where = highest(torch.tensor(rows, dtype=torch.float), count)
    for row, own_values, own_where in zip(rows, values.tolist(), where.tolist(), strict=True):
        expected = sorted(range(6), key=lambda i: (-row[i], i))[:count]
        assert own_where == expected
        assert own_values == [row[i] for i in expected]


# ---- ensembles -------------------------------------------------------------------------------


def test_an_ensemble_of_the_same_model_twice_is_that_model() -> None:
    model, source = tiny(), sources([4, 2, 8])
    decode = DecodeConfig(max_length=10)
    twice = beam_search(Ensemble([SingleModel(model)] * 2), source, decode, n_best=4)
    once = beam_search(SingleModel(model), source, decode, n_best=4)
    for pair, single in zip(twice, once, strict=True):
        assert [h.tokens for h in pair] == [h.tokens for h in single]
        assert [h.score for h in pair] == pytest.approx([h.score for h in single], abs=1e-5)


def test_an_ensemble_averages_probabilities() -> None:
    models, source = [tiny(0), tiny(1, decoder_solver="rk2"), tiny(2)], sources([4, 7])
    found = beam_search(
        Ensemble([SingleModel(model) for model in models]),
        source,
        DecodeConfig(max_length=9),
        n_best=4,
    )
    for row, hypotheses in enumerate(found):
        for h in hypotheses:
            tables = [teacher_forced(m, source[row], h.tokens).exp() for m in models]
            expected = 0.0
            for i, token in enumerate([*h.tokens, EOS]):
                expected += math.log(sum(float(table[i, token]) for table in tables) / 3)
            assert h.log_probability == pytest.approx(expected, abs=1e-4)


# ---- sampling --------------------------------------------------------------------------------


def test_sampling_follows_its_seed() -> None:
    scorer, source = SingleModel(tiny()), sources([4] * 20)
    first = sample(scorer, source, Sampling(seed=7), DecodeConfig())
    assert sample(scorer, source, Sampling(seed=7), DecodeConfig()) == first
    assert sample(scorer, source, Sampling(seed=8), DecodeConfig()) != first


def test_a_sample_does_not_depend_on_the_batch_around_it() -> None:
    scorer, source = SingleModel(tiny()), sources([4, 9, 2, 6])
    together = sample(scorer, source, Sampling(), DecodeConfig(), [10, 11, 12, 13])
    for row in range(4):
        (single,) = sample(scorer, [source[row]], Sampling(), DecodeConfig(), [10 + row])
        assert together[row].tokens == single.tokens


def test_a_sample_carries_its_log_probability() -> None:
    model, source = tiny(), sources([4, 9, 2, 6])
    found = sample(SingleModel(model), source, Sampling(temperature=2.0), DecodeConfig())
    for row, drawn in enumerate(found):
        expected = log_probability(model, source[row], drawn.tokens)
        assert drawn.log_probability == pytest.approx(expected, abs=1e-4)
        assert drawn.score == drawn.log_probability


P = {A: 0.5, B: 0.3, C: 0.15, C + 1: 0.05}


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), P),
        (Sampling(temperature=0.5), {k: p**2 / 0.365 for k, p in P.items()}),
        (Sampling(top_k=2), {A: 0.625, B: 0.375}),
        (Sampling(top_p=0.6), {A: 0.625, B: 0.375}),
        (Sampling(top_p=0.9), {A: 0.5 / 0.95, B: 0.3 / 0.95, C: 0.15 / 0.95}),
        (Sampling(top_k=3, top_p=0.5), {A: 1.0}),
        (Sampling(temperature=1e-300), {A: 1.0}),
        (Sampling(top_k=100), P),
    ],
    ids=str,
)
def test_samples_have_the_distribution_asked_for(
    sampling: Sampling, expected: dict[int, float]
) -> None:
    count = 4000
    script = Script(lambda _, prefix: P if not prefix else {EOS: 1.0})
    drawn = sample(script, sources([1] * count), sampling, DecodeConfig(max_length=1))
    frequencies = Counter(h.tokens[0] for h in drawn)
    assert set(frequencies) == set(expected)
    for token, p in expected.items():
        assert abs(frequencies[token] / count - p) <= 4 * math.sqrt(p * (1 - p) / count)


def test_samples_keep_the_limit_and_the_rules() -> None:
    script = Script(lambda _, prefix: {PAD: 0.5, BOS: 0.2, A: 0.2, EOS: 0.1})
    drawn = sample(script, sources([1] * 50), Sampling(), DecodeConfig(max_length=5))
    assert {token for h in drawn for token in h.tokens} == {A}
    assert max(len(h.tokens) for h in drawn) == 5
    assert min(len(h.tokens) for h in drawn) == 0


# ---- sentences that come and go --------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"decoder_solver": "rk2", "relative_positions": 0}])
def test_sentences_take_the_places_of_others(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few places, many sentences of different lengths: the same as one by one."""
    model = tiny(1, **settings)
    source = sources(sorted(np.random.default_rng(3).integers(1, 15, 40).tolist(), reverse=True))
    decode = DecodeConfig(beam=3)
    expected = [beam_search(SingleModel(model), [one], decode)[0] for one in source]
    for rows in (3, 12, 30):
        monkeypatch.setattr(search_module, "MOST_ROWS", rows)
        found = beam_search(SingleModel(model), source, decode)
        assert [h.tokens for (h,) in found] == [h.tokens for (h,) in expected]
        scores = [h.score for (h,) in expected]
        assert [h.score for (h,) in found] == pytest.approx(scores, abs=1e-5)


def test_one_hypothesis_is_computed_while_all_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    model, computed = tiny(1), list[int]()
    extend = model.extend

    def counting(tokens: torch.Tensor, *others: Any) -> torch.Tensor:
        computed.append(len(tokens))
        return extend(tokens, *others)

    monkeypatch.setattr(model, "extend", counting)
    beam, sentences, following = 3, sources([5, 2]), np.array([[A, B, A], [B, A, 5]])
    decoding = SingleModel(model).start(beam)
    decoding.select([], 2)
    decoding.enter([0, 1], sentences)
    first = decoding.step(np.full((2, beam), BOS), 4)
    decoding.extend(np.tile(np.arange(beam), (2, 1)))  # each goes on with what it has seen itself
    second = decoding.step(following, 4)
    assert computed == [1, 3]
    for row, (sentence, rank) in enumerate(itertools.product(range(2), range(beam))):
        alone = SingleModel(model).start(1)
        alone.select([], 1)
        alone.enter([0], [sentences[sentence]])
        for found, token in ((first, BOS), (second, following[sentence, rank])):
            expected = alone.step(np.full((1, 1), token), 4)
            alone.extend(np.zeros((1, 1), np.int64))
            assert np.array_equal(found.ids[row], expected.ids[0])
            assert found.values[row] == pytest.approx(expected.values[0], abs=1e-5)
            assert found.ends[row] == pytest.approx(expected.ends[0], abs=1e-5)


def test_slots_that_nobody_sees_are_removed() -> None:
    scorer = SingleModel(tiny(1))
    decoding = scorer.start(4)
    decoding.select([], 1)
    decoding.enter([0], sources([5]))
    for _ in range(60):  # all hypotheses always continue the first one
        decoding.step(np.full((1, 4), A), 4)
        decoding.extend(np.zeros((1, 4), np.int64))
    assert 60 < decoding.caches.used < 60 + 8 * 4


@pytest.mark.parametrize("penalty", [-0.5, 0.0, 0.6, 1.5])
def test_an_exact_stop_finds_what_a_search_to_the_limit_finds(penalty: float) -> None:
    """The present rule may miss a better translation; one that runs to the end cannot."""
    better = 0
    for seed in range(12):
        scorer, source = SingleModel(tiny(seed)), sources([4], seed)
        decode = DecodeConfig(beam=3, length_penalty=penalty, max_length=12)
        ((usual,),) = beam_search(scorer, source, decode)
        ((exact,),) = beam_search(scorer, source, decode.changed(exact_stop=True))
        # With as many hypotheses wanted as there can be, the search never stops early.
        endless = decode.changed(exact_stop=True)
        best = beam_search(scorer, source, endless, n_best=10_000)[0][0]
        assert exact == best
        assert exact.score >= usual.score
        better += exact.score > usual.score
    assert better or penalty < 1


def test_workers_share_few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is left without work while another has several sentences at once."""
    taken: list[list[int]] = []

    def one_worker(
        scorer: Scorer, sentences: Iterable[Sentence], decode: DecodeConfig, n_best: int, most: int
    ) -> Found:
        mine = list(itertools.islice(sentences, most))
        taken.append([number for number, _ in mine])
        yield from ((number, []) for number, _ in mine)

    monkeypatch.setattr(workers, "search", one_worker)
    sentences = [(number, [5] * (9 - number)) for number in range(7)]
    scorer = cast(Scorer, None)
    found = workers.search_together(3, scorer, sentences, DecodeConfig(beam=4))
    assert sorted(number for number, _ in found) == list(range(7))
    assert all(1 <= len(mine) <= 3 for mine in taken)

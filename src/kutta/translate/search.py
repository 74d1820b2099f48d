"""Beam search over ids; a beam of one is greedy search."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kutta.config import DecodeConfig
from kutta.data.tokenizer import BOS, EOS
from kutta.translate.hypothesis import Hypothesis, highest, length_limits, numbers, permitted
from kutta.translate.scorer import Scorer, ScorerState, State


@torch.inference_mode()
def beam_search(
    scorer: Scorer[State], source: Tensor, decode: DecodeConfig, n_best: int = 1
) -> list[list[Hypothesis]]:
    """The up to `n_best` best translations of each sentence of source (B, S), best first.

    A hypothesis ends when EOS is among the `beam` best continuations. A sentence is finished as
    soon as `beam` hypotheses have ended, as in fairseq, even if a live one could still overtake
    them by its length penalty. At `max_length` tokens EOS is forced, so every sentence has a
    translation. `min_length` and `no_repeat_ngram` exclude continuations, see `permitted`. Of equal
    candidates the one from the better hypothesis comes first, then the one with the lower id.
    """
    ended: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    if not ended:
        return ended
    beam, state = decode.beam, scorer.start(source)
    state.select(torch.arange(len(source), device=source.device).repeat_interleave(beam))
    live = _Live.first(length_limits(source, decode), beam)
    while live.sentences:
        tokens = live.tokens.flatten(0, 1)
        log_probabilities = scorer.step(tokens[:, -1], state)
        limits = live.limits.repeat_interleave(beam)
        log_probabilities = permitted(log_probabilities, tokens, limits, decode)
        values, parents, words = _candidates(log_probabilities, live.scores)
        ends = words == EOS
        ending = (ends & values.isfinite())[:, :beam]
        for row, rank in numbers(ending.nonzero()):
            prefix = numbers(live.tokens[row, parents[row, rank], 1:])
            hypothesis = Hypothesis.of(prefix, float(values[row, rank]), decode.length_penalty)
            ended[live.sentences[row]].append(hypothesis)
        # At most K of the 2K candidates end, one for each parent, so K others continue.
        onward = ends.byte().argsort(dim=1, stable=True)[:, :beam]
        values, parents, words = (x.gather(1, onward) for x in (values, parents, words))
        stay: list[int] = []
        for row, best in enumerate(numbers(values[:, 0])):
            found = ended[live.sentences[row]]
            if best > -math.inf and len(found) < beam:
                stay.append(row)
            elif not found:  # only if log-probabilities are not finite: the best unfinished one
                found.append(Hypothesis(numbers(live.tokens[row, 0, 1:]), -math.inf, -math.inf))
        live.extend(values, parents, words, stay, state)
    return [sorted(hypotheses, key=lambda h: -h.score)[:n_best] for hypotheses in ended]


@dataclass
class _Live:
    """The K live hypotheses of each of b unfinished sentences, best first.

    sentences: the row of each in the source; limits (b,); scores (b, K), -inf in an empty place;
    tokens (b, K, t) with BOS.
    """

    sentences: list[int]
    limits: Tensor
    scores: Tensor
    tokens: Tensor

    @classmethod
    def first(cls, limits: Tensor, beam: int) -> "_Live":
        """One empty hypothesis for every sentence; limits (B,)."""
        shape = (len(limits), beam)
        scores = torch.full(shape, -math.inf, device=limits.device)
        scores[:, 0] = 0.0
        tokens = torch.full((*shape, 1), BOS, device=limits.device)
        return cls(list(range(len(limits))), limits, scores, tokens)

    def extend(
        self, scores: Tensor, parents: Tensor, words: Tensor, stay: list[int], state: ScorerState
    ) -> None:
        """Append words to the parents' tokens, all (b, K), and keep only the rows `stay`."""
        _, beam, length = self.tokens.shape
        device = self.tokens.device
        prefixes = self.tokens.gather(1, parents[:, :, None].expand(-1, -1, length))
        tokens = torch.cat([prefixes, words[:, :, None]], dim=2)
        rows = torch.arange(len(tokens), device=device)[:, None] * beam + parents
        self.scores, self.tokens = scores, tokens
        if len(stay) < len(self.sentences):
            kept = torch.tensor(stay, dtype=torch.long, device=device)
            self.sentences = [self.sentences[row] for row in stay]
            self.limits, self.scores, self.tokens = (x[kept] for x in (self.limits, scores, tokens))
            state.select(rows[kept].flatten())
        elif (parents != torch.arange(beam, device=device)).any():
            state.select(rows.flatten(), same_sentences=True)


def _candidates(log_probabilities: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The 2K best continuations of the K live hypotheses of each sentence, best first.

    log_probabilities (b*K, V), scores (b, K) -> scores, parents and words, each (b, 2K).
    """
    b, beam = scores.shape
    # No hypothesis has more than 2K of the best 2K. Its continuations are ranked before its score
    # is added, because the addition may round different values to the same number.
    best, words = highest(log_probabilities, min(2 * beam, log_probabilities.shape[1]))
    each = best.shape[1]
    totals = (best.reshape(b, beam, each) + scores[:, :, None]).flatten(1)
    totals, order = totals.sort(dim=1, descending=True, stable=True)
    totals, order = totals[:, : 2 * beam], order[:, : 2 * beam]
    return totals, order // each, words.reshape(b, beam * each).gather(1, order)

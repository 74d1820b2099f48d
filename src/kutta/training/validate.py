"""Validation: loss, perplexity per token and per word, and BLEU."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from kutta import __version__
from kutta.config import TrainConfig
from kutta.data.batches import Pairs, batches_in_order
from kutta.data.tokenizer import UNK, Tokenizer
from kutta.metrics import Score
from kutta.model import TextModel
from kutta.training.objective import token_loss
from kutta.training.precision import autocast


@dataclass(frozen=True)
class Validation:
    """The result of one validation; `loss` is smoothed, `nll` is not, both per token."""

    loss: float
    nll: float
    tokens: int
    bleu: Score | None = None

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, 50.0))

    def to_dict(self) -> dict[str, Any]:
        bleu, signature = (self.bleu.value, self.bleu.signature) if self.bleu else (None, None)
        own = {"perplexity": self.perplexity, "bleu": bleu, "signature": signature}
        return asdict(self) | own

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Validation":
        """The inverse of `to_dict`."""
        bleu, signature = values["bleu"], values["signature"]
        score = None if bleu is None else Score("BLEU", bleu, "", signature)
        loss, nll = (math.nan if values[key] is None else values[key] for key in ("loss", "nll"))
        return cls(loss, nll, values["tokens"], score)


def held_out_loss(
    model: TextModel, store: Pairs, config: TrainConfig, device: torch.device
) -> Validation:
    """The mean loss per target token over a whole store, without dropout."""
    model.eval()
    smoothed = nll = 0.0
    tokens = 0
    with torch.inference_mode():
        for _, batch in batches_in_order(store, config.batch_tokens):
            batch = batch.to(device)
            with autocast(device, config):
                hidden = model(batch.source, batch.target_in)
                loss = token_loss(
                    hidden, model.output_weight, batch.target_out, model.pad, config.label_smoothing
                )
            smoothed += float(loss.smoothed)
            nll += float(loss.nll)
            tokens += batch.tokens
    return Validation(smoothed / tokens, nll / tokens, tokens)


def word_perplexity(
    model: TextModel,
    tokenizer: Tokenizer,
    lines: Sequence[str],
    config: TrainConfig,
    device: torch.device,
) -> Score:
    """exp(-log p(text) / words), the end of each line counted as a word, as is usual for PTB.

    Perplexities of different vocabularies are comparable only without unknown words, so the share
    of unknown tokens is reported as well.
    """
    ids = [tokenizer.encode(line) for line in lines]
    longest = max(map(len, ids), default=0) + 1
    config = config.model_copy(update={"batch_tokens": max(config.batch_tokens, longest)})
    result = held_out_loss(model, [([], row) for row in ids], config, device)
    words = sum(len(line.split()) for line in lines) + len(lines)
    unknown = sum(row.count(UNK) for row in ids) / max(1, sum(map(len, ids)))
    return Score(
        name="perplexity",
        value=math.exp(min(result.nll * result.tokens / words, 50.0)),
        details=f"{words:,} words, {100 * unknown:.2f}% unknown, {result.perplexity:.2f} per token",
        signature=f"kutta|per:word|eos:yes|context:sentence|version:{__version__}",
    )


def improves(now: Validation, best: float | None, by: str) -> tuple[bool, float]:
    """Whether this validation is a new best by "loss" or "bleu", and its value."""
    if by == "bleu":
        value = now.bleu.value if now.bleu is not None else -math.inf
        return best is None or value > best, value
    # A non-finite loss is never the best: nothing would ever be smaller than nan.
    return math.isfinite(now.loss) and (best is None or now.loss < best), now.loss

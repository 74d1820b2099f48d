"""Validation: loss, perplexity and BLEU on held-out pairs."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch

from kutta.config import TrainConfig
from kutta.data.batches import batches_in_order
from kutta.data.store import Store
from kutta.metrics import Score
from kutta.model import TranslationModel
from kutta.training.loop import autocast
from kutta.training.objective import token_loss


@dataclass(frozen=True)
class Validation:
    """One look at held-out data; `loss` is smoothed, `nll` is not, both per token."""

    loss: float
    nll: float
    tokens: int
    bleu: Score | None = None

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, 50.0))

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self) | {"perplexity": self.perplexity}
        values["bleu"] = None if self.bleu is None else self.bleu.value
        values["signature"] = None if self.bleu is None else self.bleu.signature
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Validation":
        """What `to_dict` wrote, as far as it was kept."""
        bleu, signature = values["bleu"], values["signature"]
        score = None if bleu is None else Score("BLEU", bleu, "", signature)
        loss, nll = (math.nan if values[key] is None else values[key] for key in ("loss", "nll"))
        return cls(loss, nll, values["tokens"], score)


def held_out_loss(
    model: TranslationModel, store: Store, config: TrainConfig, device: torch.device
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


def improves(now: Validation, best: float | None, by: str) -> tuple[bool, float]:
    """Whether this validation is a new best by "loss" or "bleu", and its value."""
    if by == "bleu":
        value = now.bleu.value if now.bleu is not None else -math.inf
        return best is None or value > best, value
    # A loss that is not finite is no best: nothing would ever be smaller than nan.
    return math.isfinite(now.loss) and (best is None or now.loss < best), now.loss

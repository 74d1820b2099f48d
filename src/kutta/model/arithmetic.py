"""What a model costs: parameters by part, and arithmetic per token."""

from dataclasses import dataclass

from torch import nn

from kutta.model.stack import Layer, Stack
from kutta.model.transformer import TranslationModel


@dataclass(frozen=True)
class Cost:
    """Parameters of each part, and multiply-adds of the matrix products per token.

    A source token passes the encoder and the decoder's projection of the memory, a target token
    the decoder and the output layer. Each evaluation of F counts; attention's own products, which
    grow with the sentence, do not.
    """

    embeddings: int
    encoder: int
    decoder: int
    solver: int
    per_source_token: int
    per_target_token: int

    @property
    def parameters(self) -> int:
        return self.embeddings + self.encoder + self.decoder


def cost_of(model: TranslationModel) -> Cost:
    """The cost of a model, read off its modules."""
    stacks = (model.encoder, model.decoder)
    embeddings = {
        id(p): p for e in (model.source_embedding, model.target_embedding) for p in e.parameters()
    }
    projected = sum(
        _products(layer.cross.attention.kv)
        for layer in model.decoder.each_layer()
        if layer.cross is not None
    )
    return Cost(
        embeddings=sum(p.numel() for p in embeddings.values()),
        encoder=_count(model.encoder),
        decoder=_count(model.decoder),
        solver=sum(_count(layer.solvers) for stack in stacks for layer in stack.each_layer()),
        per_source_token=_evaluated(model.encoder) + projected,
        per_target_token=_evaluated(model.decoder) + model.output_weight.numel(),
    )


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _products(module: nn.Module) -> int:
    """Multiply-adds per token of one pass through the linear layers of a module."""
    return sum(m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear))


def _evaluated(stack: Stack) -> int:
    return sum(_evaluated_layer(layer) for layer in stack.each_layer())


def _evaluated_layer(layer: Layer) -> int:
    """Multiply-adds per token of a layer; the memory's projection is not part of a stage."""
    once = {"san": _products(layer.san), "ffn": _products(layer.ffn)}
    if layer.cross is not None:
        once["cross"] = _products(layer.cross) - _products(layer.cross.attention.kv)
    return sum(
        solver.evaluations * sum(once[name] for name in names) for names, solver in layer.steps()
    )

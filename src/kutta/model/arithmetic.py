"""What a model costs: parameters by part, and arithmetic per token."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from kutta.model.decoding import Embedding, OutputLayer, TextModel
from kutta.model.stack import Stack


@dataclass(frozen=True)
class Cost:
    """Parameters of each part, and multiply-adds of the matrix products per token.

    A source token passes the encoder and the decoder's projection of the memory, a target token
    the decoder and the output layer. What several layers share is one parameter, but each
    evaluation of F counts; attention's own products, which grow with the sentence, do not.
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


def cost_of(model: TextModel) -> Cost:
    """The cost of a model, read off its modules; a language model has no encoder."""
    stacks = [child for child in model.children() if isinstance(child, Stack)]
    encoder = [stack for stack in stacks if stack is not model.decoder]
    solvers = [layer.solvers for stack in stacks for layer in stack.each_layer()]
    projected = sum(
        _products(layer.cross.attention.kv) * len(layer.sublayers("cross"))
        for layer in model.decoder.each_layer()
        if layer.cross is not None
    )
    return Cost(
        embeddings=_count(c for c in model.children() if isinstance(c, Embedding | OutputLayer)),
        encoder=_count(encoder),
        decoder=_count([model.decoder]),
        solver=_count(solvers),
        per_source_token=sum(map(_evaluated, encoder)) + projected,
        per_target_token=_evaluated(model.decoder) + model.output_weight.numel(),
    )


def _count(modules: Iterable[nn.Module]) -> int:
    """The numbers in the parameters of some modules; one that they share counts once."""
    unique = {id(p): p for module in modules for p in module.parameters()}
    return sum(parameter.numel() for parameter in unique.values())


def _products(module: nn.Module) -> int:
    """Multiply-adds per token of one pass through the linear layers of a module."""
    return sum(m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear))


def _evaluated(stack: Stack) -> int:
    """Multiply-adds per token of a stack; the memory's projection is not part of a stage."""
    total = 0
    for layer in stack.each_layer():
        for block, solver in layer.steps():
            once = sum(_products(layer.sublayers(name)[0]) for name in block.parts)
            if layer.cross is not None and "cross" in block.parts:
                once -= _products(layer.cross.attention.kv)
            gates = sum(matrix.numel() for matrix in solver.parameters() if matrix.dim() == 2)
            total += solver.evaluations * once + gates
    return total

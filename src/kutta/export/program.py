"""Recording what a model computes as a program for the kernels of `kutta.native`.

While a `Recorder` is active, tensors on torch's meta device stand for the registers of the program,
and each torch function on one of them adds an operation. The model's own code runs, so every method
is recorded alike. Weights are named, not copied: the kernels read them from model.safetensors.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from kutta.export.products import unit_behind_norm
from kutta.export.registers import Operation, needed, share_registers
from kutta.export.trace import on_meta, tensors_in
from kutta.model import TextModel, TranslationModel
from kutta.model.attention import KeyValues, Slots
from kutta.model.decoding import Embedding
from kutta.model.field import Context
from kutta.model.int8 import SMALL
from kutta.model.stack import LayerState

ROWS = 1013  # what stands for the number of rows; nothing depends on it


class Unknown(Exception):
    """The model computes something that the kernels do not."""


def programs_of(model: TextModel, precision: str) -> dict[str, Any] | None:
    """The programs of a model as JSON has them: of its decoder, and of its encoder if it has one.

    None if the kernels cannot compute it; its graphs then do.
    """
    try:
        found = {"decoder": _decoder(model, precision)}
        if isinstance(model, TranslationModel):
            found["encoder"] = _encoder(model, precision)
    except Unknown:
        return None
    return found


@torch.no_grad()
def _encoder(model: TranslationModel, precision: str) -> dict[str, Any]:
    """Source tokens -> the keys and values of every cross-attention."""
    recorder = Recorder(model, precision)
    with recorder:
        y = recorder.embedded(model.source_embedding)
        layers = [
            LayerState([], [Kept(recorder, "attend_source", 0) for _ in range(layer.evaluations)])
            for layer in model.encoder.each_layer()
        ]
        states = model.encoder(y, recorder.context, states=layers)
        projected = [kv for layer in model.decoder.each_layer() for kv in layer.projected(states)]
        for number, kv in enumerate(projected):
            recorder.add("memorise", [recorder.whole(kv.keys, kv.values)], index=number)
    return recorder.program()


@torch.no_grad()
def _decoder(model: TextModel, precision: str) -> dict[str, Any]:
    """One step: tokens, caches and memories -> the best continuations."""
    recorder = Recorder(model, precision)
    with recorder:
        y = recorder.embedded(model.target_embedding)
        layers: list[LayerState] = []
        caches = memories = 0
        for layer in model.decoder.each_layer():
            crosses = layer.sublayers("cross") if layer.cross is not None else []
            read = [Read(recorder, memories + n) for n in range(len(crosses))]
            kept = [Kept(recorder, "attend_slots", caches + n) for n in range(layer.evaluations)]
            memories, caches = memories + len(read), caches + len(kept)
            layers.append(LayerState([*read], [*kept]))
        hidden = recorder.register(model.decoder(y, recorder.context, states=layers))
        activations = recorder.activations(hidden, model.output_weight)
        recorder.add("best", [hidden], matrix=recorder.name(model.output_weight), **activations)
    return recorder.program()


@dataclass(frozen=True)
class Part:
    """Part `index` of the `count` numbers that are side by side for every head in a register."""

    register: int
    index: int = 0
    count: int = 1


class Recorder(TorchFunctionMode):
    """A program that grows while torch functions are called."""

    def __init__(self, model: TextModel, precision: str) -> None:
        super().__init__()
        self.in_8_bits = precision == "int8"
        self.operations: list[Operation] = []
        self.widths: list[int] = []  # of registers, each written once
        self._parts: dict[int, Part] = {}  # by the id of the tensor that stands for them
        self._alive: list[Tensor] = []  # an id is unique only while its tensor lives
        self._names = {id(p): name for name, p in model.named_parameters()}
        nothing = torch.empty(0)  # who sees what is no part of a program, only that somebody does
        self.context = Context(bias=nothing, offsets=nothing, memory_bias=nothing)

    # ---- registers and operations ------------------------------------------------------------

    def add(self, kind: str, registers: Iterable[int], width: int = 0, **more: Any) -> int:
        """Add an operation, which writes a new register of this width, if any; returns that."""
        operation: Operation = {"do": kind, "from": list(registers)}
        if width:
            operation["to"] = len(self.widths)
            self.widths.append(width)
        self.operations.append(operation | {k: v for k, v in more.items() if v is not None})
        return len(self.widths) - 1

    def symbol(self, part: Part, shape: Iterable[int]) -> Tensor:
        """A tensor that stands for a register, or for a part of it."""
        made = torch.empty(tuple(shape), device="meta")
        self._parts[id(made)] = part
        self._alive.append(made)
        return made

    def embedded(self, embedding: Embedding) -> Tensor:
        """The embedded tokens (1, ROWS, d), with their positions."""
        table = embedding.tokens.weight
        width = table.shape[1]
        register = self.add("embed", [], width, matrix=self.name(table), number=embedding.scale)
        return self.symbol(Part(register), (1, ROWS, width))

    def register(self, value: Tensor) -> int:
        part = self._part(value)
        if part.count != 1:
            raise Unknown("a part of a register where a register is needed")
        return part.register

    def _part(self, value: Any) -> Part:
        if id(value) not in self._parts:
            raise Unknown("a tensor that is in no register")
        return self._parts[id(value)]

    def whole(self, *parts: Tensor) -> int:
        """The register of which these are all parts, in order."""
        found = [self._part(one) for one in parts]
        if found != [Part(found[0].register, n, len(parts)) for n in range(len(parts))]:
            raise Unknown("parts of several registers")
        return found[0].register

    def name(self, tensor: Tensor) -> str:
        """The name of a parameter."""
        self._alive.append(tensor)
        if id(tensor) not in self._names:
            raise Unknown("a matrix that is no parameter")
        return self._names[id(tensor)]

    def activations(self, register: int, weight: Tensor) -> Operation:
        """How the activations of a product are brought into 8 bits; see `Int8` in products.py."""
        made = next(o for o in reversed(self.operations) if o.get("to") == register)
        if not self.in_8_bits or weight.numel() < SMALL or made["do"] not in ("norm", "relu"):
            return {}
        if made["do"] == "relu":
            return {"how": "behind relu"}
        return {"how": "behind norm", "number": made["unit"]}

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> int:
        register = self.register(x)
        more = self.activations(register, weight)
        if more.get("how") == "behind relu":  # the product computes it
            register = next(o for o in self.operations if o.get("to") == register)["from"][0]
        vector = None if bias is None else self.name(bias)
        return self.add(
            "product", [register], len(weight), matrix=self.name(weight), vector=vector, **more
        )

    def program(self) -> dict[str, Any]:
        """The operations that lead to a result, with as few registers as they need at once."""
        operations = needed(self.operations)
        for operation in operations:
            operation.pop("unit", None)
        return {"registers": share_registers(operations, self.widths), "operations": operations}

    # ---- the mode ----------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if not any(id(tensor) in self._parts for tensor in tensors_in((args, kwargs))):
            return func(*args, **kwargs)
        found: Any = func(*on_meta(args), **on_meta(kwargs))
        if isinstance(found, torch.Size) or not isinstance(found, Tensor | tuple):
            return found  # a shape, a type, a device
        name: str = getattr(func, "__name__", "")
        if name in ("view", "reshape", "contiguous", "float"):
            return self.symbol(self._part(args[0]), cast(Tensor, found).shape)
        if not isinstance(found, Tensor):
            if name != "unbind":
                raise Unknown(name)
            several, register = cast(tuple[Tensor, ...], found), self.register(args[0])
            parts = [Part(register, n, len(several)) for n in range(len(several))]
            return tuple(map(self.symbol, parts, (x.shape for x in several)))
        return self.symbol(Part(self._record(name, found, *args, **kwargs)), found.shape)

    def _record(self, name: str, found: Tensor, *args: Any, **kwargs: Any) -> int:
        width = found.shape[-1]
        if name == "linear":
            return self.product(args[0], args[1], args[2] if len(args) > 2 else None)
        if name == "layer_norm":
            x, _, gain, offset, epsilon, *_ = *args, *kwargs.values()
            names = {"vector": self.name(gain), "offset": self.name(offset)}
            unit = unit_behind_norm(gain.detach().numpy(), offset.detach().numpy())
            more: Operation = names | {"number": epsilon, "unit": unit}
            return self.add("norm", [self.register(x)], width, **more)
        if name in ("relu", "sigmoid"):
            return self.add(name, [self.register(args[0])], width)
        if name in ("add", "__add__", "__radd__"):
            return self._sum(args[0], kwargs.get("alpha", 1.0), args[1], width)
        if name in ("mul", "__mul__", "__rmul__"):
            return self._scaled(args[0], args[1], width)
        if name == "addcmul":
            return self._sum(args[0], args[1], args[2], width)
        if name in ("rsub", "__rsub__"):  # number - x, whose method has them the other way round
            return self.add("subtract", [self.register(args[0])], width, number=float(args[1]))
        if name == "cat":
            first, second = (self.register(x) for x in args[0])
            return self.add("concat", [first, second], width)
        raise Unknown(name)

    def _sum(self, y: Tensor, factor: Any, x: Tensor, width: int) -> int:
        """y + factor x, the factor a number, or a register with one for each row."""
        if id(factor) in self._parts:
            return self.add("add rows", map(self.register, (y, factor, x)), width)
        return self.add("add", map(self.register, (y, x)), width, number=float(factor))

    def _scaled(self, a: Any, b: Any, width: int) -> int:
        """The product of a register with a number, or with a vector."""
        x, factor = (a, b) if id(a) in self._parts else (b, a)
        if isinstance(factor, Tensor) and factor.dim():
            return self.add("multiply", [self.register(x)], width, vector=self.name(factor))
        return self.add("scale", [self.register(x)], width, number=float(factor))


class _Seen(Slots):
    """What self-attention sees, the present keys and values included."""

    def __init__(self, recorder: Recorder, operation: Operation, keys: Tensor, values: Tensor):
        super().__init__(keys, values)
        self.recorder, self.operation = recorder, operation

    def relative(self, bias: Tensor, q: Tensor, table: Tensor, offsets: Tensor) -> Tensor:
        self.operation["vector"] = self.recorder.name(table)
        return bias

    def attend(self, q: Tensor, bias: Tensor) -> Tensor:
        recorder = self.recorder
        register = recorder.whole(q, self.keys, self.values)
        width = q.shape[2] * q.shape[3]
        kind, more = self.operation["do"], {k: v for k, v in self.operation.items() if k != "do"}
        return recorder.symbol(
            Part(recorder.add(kind, [register], width, **more)), (*q.shape[:2], width)
        )


class Kept(KeyValues):
    """Keys and values of an evaluation of self-attention, in a cache or all at once."""

    def __init__(self, recorder: Recorder, kind: str, number: int) -> None:
        self.recorder, self.operation = recorder, {"do": kind, "index": number}

    def append(self, keys: Tensor, values: Tensor) -> _Seen:
        return _Seen(self.recorder, dict(self.operation), keys, values)


class Read(Slots):
    """The projected source that a cross-attention reads."""

    def __init__(self, recorder: Recorder, number: int) -> None:
        self.recorder, self.number = recorder, number

    def attend(self, q: Tensor, bias: Tensor) -> Tensor:
        width = q.shape[2] * q.shape[3]
        register = self.recorder.register(q)
        made = self.recorder.add("attend_memory", [register], width, index=self.number)
        return self.recorder.symbol(Part(made), (*q.shape[:2], width))

"""Recording what a model computes as an ONNX graph, by running its own code.

While a `Tracer` is active, tensors on torch's meta device, which have a shape but no numbers, stand
for the values of the graph, and each torch function on one of them adds nodes. Functions of
parameters only are computed at once, so that their results become constants. A shape may vary: its
sizes are then primes (`Sizes`), so that every product of them can be told apart from a constant.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor
from torch.overrides import TorchFunctionMode

OPSET = 17
MICROSOFT = "com.microsoft"  # the domain of onnxruntime's own operators

TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT16,
    torch.int64: TensorProto.INT64,
    torch.bool: TensorProto.BOOL,
}

# What a size in a traced shape stands for: no model has such sizes.
VARYING = {"hypotheses": 1009, "sentences": 1013, "slots": 10007, "tokens": 10009, "seen": 10037}

Operator = Callable[..., Any]
OPERATORS: dict[str, Operator] = {}  # by the name of the torch function; see operators.py


class Products(Protocol):
    """How products with the weights of a model are computed; see products.py."""

    kept: ClassVar[torch.dtype]  # the type of keys and values between steps

    def linear(self, graph: "Tracer", x: str, weight: Tensor, bias: Tensor | None) -> str:
        """x (..., in) times weight (out, in), plus a bias (out,)."""
        ...

    def listed(self, graph: "Tracer", x: str, width: int) -> tuple[str, str]:
        """x (R, width) times columns that are inputs of the graph, and their bias, an input too."""
        ...

    def rows(self, graph: "Tracer", table: Tensor, ids: str) -> str:
        """The rows of a table (V, d) at ids (...): (..., d)."""
        ...


class Tracer(TorchFunctionMode):
    """A graph that grows while torch functions are called."""

    def __init__(self, model: torch.nn.Module, products: Products) -> None:
        super().__init__()
        self.products = products
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._count = 0
        self._names: dict[int, str] = {}  # of symbols and constants, by id
        self._alive: list[Tensor] = []  # an id is unique only while its tensor lives
        self._sizes: dict[str, str] = {}  # the names of varying sizes, read from inputs
        self._shapes: dict[tuple[int, ...], str] = {}
        self._folded: dict[int, str] = {}  # names of weights made of parameters, by id
        self._parameters = {id(p): name for name, p in model.named_parameters()}

    # ---- symbols and nodes -------------------------------------------------------------------

    def symbol(self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor that stands for the value of this name."""
        made = torch.empty(tuple(shape), dtype=dtype, device="meta")
        self._names[id(made)] = name
        self._alive.append(made)
        return made

    def input(self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """An input of the graph; a size that varies is known from the first that has it."""
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], dimensions(shape)))
        for size, value in VARYING.items():
            if value in tuple(shape) and size not in self._sizes:
                axis = self.constant(np.array([tuple(shape).index(value)]))
                self._sizes[size] = self.node("Gather", [self.node("Shape", [name]), axis])
        return self.symbol(name, shape, dtype)

    def output(self, name: str, value: Tensor) -> None:
        """Make a value an output of this name."""
        self.nodes.append(helper.make_node("Identity", [self.name(value)], [name]))
        kind = TYPES[value.dtype]
        self.outputs.append(helper.make_tensor_value_info(name, kind, dimensions(value.shape)))

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        """Add a node of one output; returns its name."""
        return self.split(kind, inputs, 1, domain, **attributes)[0]

    def split(
        self, kind: str, inputs: Sequence[str], count: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node of several outputs; returns their names."""
        number = self._count = self._count + 1
        names = [f"{kind}.{number}" + (f".{i}" if count > 1 else "") for i in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names

    def origin(self, name: str) -> onnx.NodeProto | None:
        """The node that computed the numbers of a value, which may since have another layout."""
        for node in reversed(self.nodes):
            if name in node.output:
                if node.op_type not in ("Reshape", "Transpose"):
                    return node
                name = node.input[0]
        return None

    def constant(self, array: NDArray[Any], name: str = "") -> str:
        """The name of a constant; equal small ones are one."""
        array = np.asarray(array)
        if not name:
            digest = f"{array.dtype}{array.shape}{array.tobytes().hex()}" if array.size < 64 else ""
            name = f"constant.{digest or len(self.constants)}"
        self.constants.setdefault(name, array)
        return name

    def name(self, value: Tensor) -> str:
        """The name of a symbol, or of a tensor of numbers as a constant."""
        if id(value) not in self._names:
            assert value.device.type != "meta", "a value that the tracer did not see"
            name = self._parameters.get(id(value), "")
            self._names[id(value)] = self.constant(value.detach().cpu().numpy(), name)
            self._alive.append(value)
        return self._names[id(value)]

    def parameter(self, value: Tensor) -> str:
        """The name of a parameter in the model, or another name that is its own."""
        self._alive.append(value)
        if id(value) in self._parameters:
            return self._parameters[id(value)]
        return self._folded.setdefault(id(value), f"folded.{len(self._folded)}")

    def shape(self, sizes: Sequence[int]) -> str:
        """The name of a shape (int64) with these sizes, of which some may vary."""
        key = tuple(sizes)
        if key not in self._shapes:
            parts = [self._size(size) for size in key]
            self._shapes[key] = self.node("Concat", parts, axis=0)
        return self._shapes[key]

    def _size(self, size: int) -> str:
        varying = [name for name, value in VARYING.items() if size % value == 0 and size]
        factor = size // prod(VARYING[name] for name in varying)
        names = [self._sizes[name] for name in varying]
        names += [self.constant(np.array([factor]))] if factor != 1 or not names else []
        product, *others = names
        for other in others:
            product = self.node("Mul", [product, other])
        return product

    def reshape(self, name: str, before: Sequence[int], after: Sequence[int]) -> str:
        """The value in another shape: with constants, 0 (the same) and one -1 where possible."""
        sizes = [
            0 if i < len(before) and size == before[i] and varies(size) else size
            for i, size in enumerate(after)
        ]
        unknown = [i for i, size in enumerate(sizes) if varies(size)]
        if len(unknown) > 1:
            return self.node("Reshape", [name, self.shape(after)])
        sizes = [-1 if varies(size) else size for size in sizes]
        return self.node("Reshape", [name, self.constant(np.array(sizes, np.int64))])

    # ---- the mode ----------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name: str = getattr(func, "__name__", "")
        symbolic = any(self._is_symbol(t) for t in tensors_in((args, kwargs)))
        if not symbolic:
            if name == "arange" and any(varies(n) for n in args if isinstance(n, int)):
                return self._record(OPERATORS[name], name, func, args, kwargs)
            if kwargs.get("device") == torch.device("meta"):
                kwargs["device"] = torch.device("cpu")
            return func(*args, **kwargs)
        return self._record(OPERATORS.get(name), name, func, args, kwargs)

    def _record(
        self, operator: Operator | None, name: str, func: Any, args: Any, kwargs: Any
    ) -> Any:
        found: Any = func(*on_meta(args), **on_meta(kwargs))
        if isinstance(found, torch.Size) or not isinstance(found, Tensor | tuple | list):
            return found  # a shape, a type, a device
        if operator is None:
            raise NotImplementedError(f"the export does not know torch's function {name}")
        made: Any = operator(self, found, *args, **kwargs)
        if isinstance(found, Tensor):
            return self.symbol(made, found.shape, found.dtype)
        pairs = zip(cast(list[str], made), cast(list[Tensor], found), strict=True)
        return tuple(self.symbol(one, value.shape, value.dtype) for one, value in pairs)

    def _is_symbol(self, value: Tensor) -> bool:
        return value.device.type == "meta" and id(value) in self._names

    # ---- the graph ---------------------------------------------------------------------------

    def model(self) -> onnx.ModelProto:
        """The graph of what leads to the outputs."""
        wanted = {value.name for value in self.outputs}
        kept: list[onnx.NodeProto] = []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                kept.append(node)
                wanted.update(_read_by(node))
        tensors = [
            numpy_helper.from_array(np.array(array, order="C"), name)
            for name, array in self.constants.items()
            if name in wanted
        ]
        inputs = [value for value in self.inputs if value.name in wanted]
        graph = helper.make_graph(kept[::-1], "kutta", inputs, self.outputs, tensors)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="kutta")


def _read_by(node: onnx.NodeProto) -> set[str]:
    """What a node reads, and what the graphs inside it read."""
    inside = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return set(node.input).union(*(_read_by(one) for graph in inside for one in graph.node))


def varies(size: int) -> bool:
    """Whether a size stands for one that varies."""
    return any(size % value == 0 for value in VARYING.values()) if size else False


def dimensions(shape: Sequence[int]) -> list[int | str]:
    """A shape as the graph declares it: names of sizes that vary, of sums and products too."""
    names = {value: name for name, value in VARYING.items()}
    known = set(range(4097))
    return [n if n in known and not varies(n) else names.get(n, f"size{n}") for n in shape]


def tensors_in(values: Any) -> list[Tensor]:
    """All tensors in nested arguments."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(cast(dict[str, Any], values).values())
    if isinstance(values, list | tuple):
        return [tensor for value in cast(list[Any], values) for tensor in tensors_in(value)]
    return []


def on_meta(values: Any) -> Any:
    """The arguments with all tensors on the meta device."""
    if isinstance(values, Tensor):
        return values if values.device.type == "meta" else values.detach().to("meta")
    if isinstance(values, dict):
        named = cast(dict[str, Any], values)
        return {name: on_meta(value) for name, value in named.items()}
    if isinstance(values, list | tuple) and not isinstance(values, torch.Size):
        inside = [on_meta(value) for value in cast(list[Any], values)]
        return inside if isinstance(values, list) else tuple(inside)
    return values

"""Programs for the kernels: program.json, checked against the weights and ready to run.

    {"decoder": {"registers": [512, ...], "operations": [{"do": "product", "from": [0], ...}, ...]},
     "encoder": ...}

An operation reads registers and writes one, each an array (rows, width). The kernels trust what
they are given, so every register, size and number is checked here.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kutta.errors import InputError
from kutta.limits import INNER_WIDTH
from kutta.parsing import read_table
from kutta.runtime import kernels
from kutta.runtime.directory import Facts
from kutta.runtime.kernels import Weights, address
from kutta.runtime.stored import Stored, stored_in

PROGRAM = "program.json"
SCALE = ":scale"  # of the rows of a matrix in 8 bits; kutta/model/int8.py
MOST_OPERATIONS, MOST_REGISTERS = 1 << 16, 256

# In the order of kernels.h, as How.
Kind = Literal[
    "embed",
    "norm",
    "product",
    "relu",
    "sigmoid",
    "add",
    "scale",
    "multiply",
    "add rows",
    "subtract",
    "concat",
    "attend_source",
    "attend_slots",
    "attend_memory",
    "memorise",
    "best",
]
How = Literal["by rows", "behind norm", "behind relu"]
KINDS: tuple[str, ...] = get_args(Kind)
HOW: tuple[str, ...] = get_args(How)
READ = {"embed": 0, "add": 2, "concat": 2, "add rows": 3}  # registers; others read one


class Operation(BaseModel):
    """An operation as program.json has it; matrices and vectors are named."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    do: Kind
    read: list[int] = Field(alias="from")
    to: int = 0
    matrix: str = ""
    vector: str = ""
    offset: str = ""
    index: int = Field(0, ge=0, lt=1 << 31)
    how: How = "by rows"
    number: float = 0.0


class _Program(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    registers: list[int] = Field(min_length=1, max_length=MOST_REGISTERS)
    operations: list[Operation] = Field(min_length=1, max_length=MOST_OPERATIONS)


@dataclass(frozen=True)
class Shape:
    """What the programs of a model have to agree with; `size` is that of a kept number in bytes."""

    heads: int
    width: int
    clip: int
    caches: int
    memories: int
    vocabulary: int
    size: int

    @classmethod
    def of(cls, facts: Facts) -> Self:
        return cls(
            heads=facts.heads,
            width=facts.width,
            clip=facts.clip,
            caches=facts.caches,
            memories=facts.memories,
            vocabulary=facts.vocabulary,
            size=np.dtype(facts.cache_type).itemsize,
        )

    @property
    def d(self) -> int:
        return self.heads * self.width


@dataclass(frozen=True)
class Ready:
    """A program with the arrays that it points to; `tokens` is how many it can embed."""

    program: kernels.Program
    tokens: int
    output: Weights | None
    kept: list[object]


def read_programs(folder: Path, weights: Path, shape: Shape) -> dict[str, Ready]:
    """The programs of an exported model by name."""
    path = folder / PROGRAM
    values = read_table(path, "export the run again")
    wanted = {"decoder", "encoder"} if shape.memories else {"decoder"}
    try:
        if values.keys() != wanted:
            raise ValueError(f"it has the programs {', '.join(values) or 'none'}")
        with open(weights, "rb", buffering=0) as file:
            read = Matrices(file, stored_in(weights))
            return {name: _ready(values[name], name, shape, read) for name in sorted(wanted)}
    except ValidationError as error:
        first = error.errors()[0]
        wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (ValueError, TypeError, KeyError) as error:
        wrong = str(error)
    raise InputError(f"{path} is damaged ({wrong}); export the run again.") from None


@dataclass
class Matrices:
    """The weights of a file, each matrix read once."""

    file: BinaryIO
    stored: Mapping[str, Stored]
    read: dict[str, Weights] = field(default_factory=dict[str, Weights])

    def vector(self, name: str) -> NDArray[np.float32] | None:
        """A tensor as it lies in the file, in fp32; None without a name."""
        if not name:
            return None
        found = self._tensor(name)
        if found.dtype == np.int8:
            found = found * self._tensor(name + SCALE)[:, None]
        return np.ascontiguousarray(found, np.float32).ravel()

    def matrix(self, name: str) -> Weights | None:
        if name and name not in self.read:
            found = self._tensor(name)
            if found.ndim != 2 or not found.size:
                raise ValueError(f"{name} is no matrix")
            if found.dtype == np.int8:
                scales = self._tensor(name + SCALE)
                if scales.shape != found.shape[:1] or scales.dtype != np.float32:
                    raise ValueError(f"{name} has other scales than rows")
                self.read[name] = Weights.in_8_bits(found, scales)
            else:
                self.read[name] = Weights.in_full(found)
        return self.read.get(name)

    def _tensor(self, name: str) -> NDArray[Any]:
        if name not in self.stored:
            raise ValueError(f"there are no weights {name}")
        return self.stored[name].read(self.file)


def _ready(values: object, name: str, shape: Shape, matrices: Matrices) -> Ready:
    program = _Program.model_validate(values)
    if not all(0 < width <= 3 * INNER_WIDTH for width in program.registers):
        raise ValueError("a register has no valid width")
    placed = [Placed(one, name, shape, program.registers, matrices) for one in program.operations]
    _check_order([one.operation for one in placed], name, shape)
    widths, made = np.array(program.registers, np.int64), (kernels.Operation * len(placed))()
    for number, one in enumerate(placed):
        made[number] = one.as_kernels_have_it()
    embedded = [one.matrix.outputs for one in placed if one.operation.do == "embed" and one.matrix]
    return Ready(
        kernels.Program(
            operations=len(made),
            registers=len(widths),
            heads=shape.heads,
            width=shape.width,
            clip=shape.clip,
            size=shape.size,
            operation=made,
            widths=address(widths),
        ),
        min(embedded, default=0),
        placed[-1].matrix if placed[-1].operation.do == "best" else None,
        [widths, made, *placed],
    )


def _check_order(operations: Sequence[Operation], name: str, shape: Shape) -> None:
    """A decoder ends with its only output layer; every cache and memory is written."""
    done = [one.do for one in operations]
    written = "attend_slots" if name == "decoder" else "memorise"
    count = shape.caches if name == "decoder" else shape.memories
    if {one.index for one in operations if one.do == written} != set(range(count)):
        raise ValueError(f"its operations {written} are not those of the model")
    if done.count("best") != (name == "decoder") or "best" in done[:-1]:
        raise ValueError("it does not end with the output layer")


class Placed:
    """An operation with its weights, whose registers and sizes fit each other."""

    def __init__(
        self,
        operation: Operation,
        program: str,
        shape: Shape,
        registers: Sequence[int],
        matrices: Matrices,
    ) -> None:
        self.operation, self.shape, self.decoder = operation, shape, program == "decoder"
        used = [*operation.read, operation.to]
        if not all(0 <= register < len(registers) for register in used):
            raise ValueError(f"{operation.do} uses a register that is not there")
        if len(operation.read) != READ.get(operation.do, 1):
            raise ValueError(f"{operation.do} does not read {len(operation.read)} registers")
        self.matrix = matrices.matrix(operation.matrix)
        self.vector = matrices.vector(operation.vector)
        self.offset = matrices.vector(operation.offset)
        if not self._fits([registers[n] for n in operation.read], registers[operation.to]):
            raise ValueError(f"{operation.do} does not fit its registers")

    def as_kernels_have_it(self) -> kernels.Operation:
        one = self.operation
        a, b, c = (*one.read, 0, 0, 0)[:3]
        made = kernels.Operation(
            kind=KINDS.index(one.do),
            out=one.to,
            a=a,
            b=b,
            c=c,
            index=one.index,
            how=HOW.index(one.how),
            number=one.number,
            vector=address(self.vector),
            offset=address(self.offset),
        )
        if self.matrix:
            made.matrix = ctypes.pointer(self.matrix.matrix)
        return made

    def _fits(self, read: Sequence[int], out: int) -> bool:
        """Whether the widths of what is read are those of weights and of the result."""
        one, shape, decoder = self.operation, self.shape, self.decoder
        a, b, c = (*read, 0, 0, 0)[:3]
        vector = 0 if self.vector is None else len(self.vector)
        offset = 0 if self.offset is None else len(self.offset)
        rows, columns = (self.matrix.outputs, self.matrix.inputs) if self.matrix else (0, 0)
        in_8_bits = self.matrix is not None and "codes" in self.matrix.arrays
        scaled = one.how == "by rows" or (
            in_8_bits and (one.how != "behind norm" or one.number > 0)
        )
        match one.do:
            case "embed":
                enough = rows >= (shape.vocabulary if decoder else 1)
                return columns == out == shape.d and enough
            case "norm":
                return a == out == vector == offset and one.number > 0
            case "product":
                return (columns, rows) == (a, out) and vector in (0, out) and scaled
            case "best":
                return decoder and (columns, rows) == (a, shape.vocabulary) and scaled
            case "add":
                return a == b == out
            case "multiply":
                return a == out == vector
            case "add rows":
                return b == 1 and a == c == out
            case "concat":
                return a + b == out
            case "attend_source" | "attend_slots":
                here = decoder == (one.do == "attend_slots")
                known = vector in (0, (2 * shape.clip + 1) * shape.width)
                return here and known and (a, out) == (3 * shape.d, shape.d)
            case "attend_memory":
                return decoder and a == out == shape.d and one.index < shape.memories
            case "memorise":
                return not decoder and a == 2 * shape.d
            case _:
                return a == out

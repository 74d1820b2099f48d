"""Calling the kernels without a model: operations on given rows, and what a register has then."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kutta.runtime import kernels
from kutta.runtime.kernels import Weights, address, library
from kutta.runtime.program import HOW, KINDS

Numbers = NDArray[np.float32]


class Do:
    """An operation on registers, with the arrays that it points to."""

    def __init__(self, kind: str, read: Sequence[int] = (), to: int = 0, **more: Any) -> None:
        a, b, c = (*read, 0, 0, 0)[:3]
        self.kept = more
        self.made = kernels.Operation(
            kind=KINDS.index(kind),
            out=to,
            a=a,
            b=b,
            c=c,
            index=more.get("index", 0),
            how=HOW.index(more.get("how", HOW[0])),
            number=more.get("number", 0.0),
            vector=address(more.get("vector")),
            offset=address(more.get("offset")),
        )
        if "matrix" in more:
            self.made.matrix = ctypes.pointer(more["matrix"].matrix)


def run(operations: Sequence[Do], widths: Sequence[int], **given: Any) -> None:
    """Run operations; what a program and a call have is given by name, arrays as they are."""
    made = (kernels.Operation * len(operations))(*(one.made for one in operations))
    registers = np.array(widths, np.int64)
    program = kernels.Program(
        operations=len(operations),
        registers=len(widths),
        operation=made,
        widths=address(registers),
        **{name: given.pop(name) for name in ("heads", "width", "clip", "size") if name in given},
    )
    call, places = kernels.Call(), list[Any]()
    for name, value in given.items():
        if isinstance(value, list):
            places.append((ctypes.c_void_p * len(value))(*(one.ctypes.data for one in value)))
            setattr(call, name, ctypes.addressof(places[-1]))
        elif isinstance(value, Weights):
            call.listed = ctypes.pointer(value.matrix)
        else:
            setattr(call, name, address(value) if isinstance(value, np.ndarray) else value)
    scratch = np.empty(library().kutta_scratch(program, call), np.uint8)
    call.scratch = address(scratch)
    library().kutta_run(program, call)


def computed(
    rows: Numbers,
    operations: Sequence[Do],
    widths: Sequence[int],
    *,
    heads: int = 1,
    width: int = 0,
    size: int = 4,
    starts: Sequence[int] | None = None,
    memories: Sequence[NDArray[Any]] = (),
    **given: Any,
) -> Numbers:
    """What the last register has after operations on rows (n, d), which are in register 0.

    Rows are read as embeddings, and the register is returned as the memory behind `memories`.
    """
    count, out = len(rows), widths[-1]
    width = width or (out + 1) // 2
    places, full = np.array(starts or [0, count], np.int64), 2 * heads * width
    sentences = len(places) - 1
    source = given.pop("source", int(np.diff(places).max()))
    keys = np.zeros((sentences, heads, width, source), {2: np.float16, 4: np.float32}[size])
    found = [keys, np.zeros((sentences, heads, source, width), keys.dtype)]
    embed = Do("embed", matrix=Weights.in_full(np.ascontiguousarray(rows)), number=1.0)
    spread = Weights.in_full(np.eye(full, out, dtype=np.float32))
    last = [
        Do("product", [len(widths) - 1], len(widths), matrix=spread),
        Do("memorise", [len(widths)], index=len(memories) // 2),
    ]
    shape = {"heads": heads, "width": width, "size": size, "sentences": sentences, "rows": count}
    run(
        [embed, *operations, *last],
        [*widths, full],
        starts=places,
        tokens=np.arange(count),
        waves=np.zeros((max(count, source), rows.shape[1]), np.float32),
        source=source,
        memories=[*memories, *found],
        **(shape | given),
    )
    spread_out = np.stack([found[0].transpose(0, 3, 1, 2), found[1].transpose(0, 2, 1, 3)], axis=3)
    by_row = spread_out.reshape(sentences, source, full)[..., :out].astype(np.float32)
    return np.concatenate([by_row[b, :n] for b, n in enumerate(np.diff(places))])

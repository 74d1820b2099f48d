"""The library of kernels in C (`kutta.native`), which runs programs, and its structures.

It is compiled when Kutta is installed, for CPUs with AVX-512 and VNNI. Elsewhere onnxruntime runs
the graphs of the same model.
"""

import ctypes
import platform
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PANEL = 64  # outputs that are computed together; kernels.h
LINE = 64  # bytes of a line of the cache
NEEDED = {  # as Linux names what a CPU can do
    *("avx2", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl", "avx512_vnni"),
    *("bmi1", "bmi2", "f16c", "fma"),
}
LIBRARY = Path(__file__).parent.parent / "native" / "libkutta.so"


class Matrix(ctypes.Structure):
    """See kernels.h, as for all structures here."""

    _fields_ = [
        ("outputs", c_int64),
        ("inputs", c_int64),
        ("codes", c_void_p),
        ("scales", c_void_p),
        ("sums", c_void_p),
        ("numbers", c_void_p),
    ]


class Operation(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("kind", "out", "a", "b", "c", "index", "how")),
        ("number", c_float),
        ("vector", c_void_p),
        ("offset", c_void_p),
        ("matrix", POINTER(Matrix)),
    ]


class Program(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("operations", "registers", "heads", "width", "clip")),
        ("size", c_int64),
        ("operation", POINTER(Operation)),
        ("widths", c_void_p),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("sentences", "rows", "used", "slots", "capacity")),
        *((name, c_int64) for name in ("source", "count", "outputs")),
        *((name, c_void_p) for name in ("starts", "tokens", "positions", "lengths", "waves")),
        *((name, c_void_p) for name in ("seen", "distances", "caches", "memories")),
        ("listed", POINTER(Matrix)),
        *((name, c_void_p) for name in ("values", "ids", "ends")),
        ("scratch", c_void_p),
    ]


@cache
def library() -> Any:
    """The library, or None if there is an `obstacle`."""
    if obstacle():
        return None
    found = ctypes.CDLL(str(LIBRARY))
    found.kutta_scratch.restype = c_int64
    found.kutta_scratch.argtypes = [POINTER(Program), POINTER(Call)]
    found.kutta_run.restype = None
    found.kutta_run.argtypes = [POINTER(Program), POINTER(Call)]
    found.kutta_pack_codes.restype = None
    found.kutta_pack_codes.argtypes = [c_void_p, c_int64, c_int64, c_void_p, c_void_p]
    found.kutta_pack_numbers.restype = None
    found.kutta_pack_numbers.argtypes = [c_void_p, c_int64, c_int64, c_void_p]
    found.kutta_choose.restype = None
    found.kutta_choose.argtypes = [POINTER(Matrix), c_void_p, c_int64, POINTER(Matrix)]
    return found


@cache
def obstacle() -> str:
    """Why the kernels cannot run here; empty if they can."""
    if not LIBRARY.is_file():
        return "the kernels are not compiled"
    if platform.machine() != "x86_64" or NEEDED - _flags():
        return "the kernels need a CPU with AVX-512 and VNNI"
    try:
        sizes = (c_int64 * 4).in_dll(ctypes.CDLL(str(LIBRARY)), "kutta_sizes")
    except (OSError, ValueError):  # it is for another system, or of other sources
        return "the kernels were compiled for something else"
    if list(sizes) != [ctypes.sizeof(one) for one in (Matrix, Operation, Program, Call)]:
        return "the kernels were compiled from other sources"
    return ""


def _flags() -> set[str]:
    """What this CPU can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


def address(array: NDArray[Any] | None) -> int | None:
    """Where the numbers of an array begin."""
    return None if array is None else array.ctypes.data


class Weights:
    """A packed matrix, with the arrays that it points to: see Matrix in kernels.h."""

    def __init__(self, outputs: int, inputs: int, in_8_bits: bool) -> None:
        padded, fours = outputs + -outputs % PANEL, inputs + -inputs % 4
        if in_8_bits:
            self.arrays = {
                "codes": _aligned(padded * fours, np.int8),
                "scales": np.zeros(padded, np.float32),
                "sums": np.zeros(padded, np.int32),
            }
        else:
            self.arrays = {"numbers": _aligned(padded * inputs, np.float32)}
        places = {name: address(array) for name, array in self.arrays.items()}
        self.outputs, self.inputs = outputs, inputs
        self.matrix = Matrix(outputs=outputs, inputs=inputs, **places)

    @classmethod
    def in_full(cls, numbers: NDArray[np.float32]) -> "Weights":
        made = cls(*numbers.shape, in_8_bits=False)
        packed = address(made.arrays["numbers"])
        library().kutta_pack_numbers(address(numbers), *numbers.shape, packed)
        return made

    @classmethod
    def in_8_bits(cls, codes: NDArray[np.int8], scales: NDArray[np.float32]) -> "Weights":
        """Rows of codes, each with a scale."""
        made = cls(*codes.shape, in_8_bits=True)
        made.arrays["scales"][: len(scales)] = scales
        packed, sums = address(made.arrays["codes"]), address(made.arrays["sums"])
        library().kutta_pack_codes(address(codes), *codes.shape, packed, sums)
        return made

    def chosen(self, ids: NDArray[np.int64]) -> "Weights":
        """The rows of these numbers."""
        made = Weights(len(ids), self.inputs, "codes" in self.arrays)
        library().kutta_choose(self.matrix, address(ids), len(ids), made.matrix)
        return made


def _aligned(count: int, dtype: type[np.generic]) -> NDArray[Any]:
    """An array that begins where a line of the cache does."""
    size = np.dtype(dtype).itemsize
    raw = np.empty(count * size + LINE, np.uint8)
    return raw[-raw.ctypes.data % LINE :][: count * size].view(dtype)

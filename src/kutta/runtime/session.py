"""A graph in onnxruntime: arrays in, arrays out."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from kutta.errors import InputError
from kutta.limits import available_memory

Arrays = Mapping[str, NDArray[Any]]


class Session:
    """An opened graph; several threads may run it at once, over one copy of the weights."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        options: Any = cast(Any, onnxruntime).SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that wait do not occupy cores, which other workers and programs need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # errors only: they come as exceptions too
        if _bounded():
            options.add_session_config_entry("session.use_env_allocators", "1")
        # Memory that shapes of the moment need would never be given back.
        options.enable_mem_pattern = False
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has a class of its own for every kind of failure
            why = str(error).splitlines()[0][:200]
            raise InputError(f"onnxruntime cannot open {path} ({why}); export it again.") from None
        self.path, self.threads = path, threads
        self.inputs: dict[str, list[Any]] = {
            value.name: value.shape for value in cast(Any, self._session).get_inputs()
        }
        self.outputs = [value.name for value in cast(Any, self._session).get_outputs()]

    def run(
        self, feeds: Arrays, outputs: Sequence[str], into: Arrays | None = None
    ) -> list[NDArray[Any]]:
        """The outputs of these names; others are written `into` arrays of the caller.

        Inputs that the graph lacks are ignored.
        """
        try:
            return self._run(feeds, outputs, into or {})
        except Exception as error:  # as above
            why = str(error).splitlines()[0][:200]
            raise InputError(f"{self.path} cannot be computed ({why}); export it again.") from None

    def _run(self, feeds: Arrays, outputs: Sequence[str], into: Arrays) -> list[NDArray[Any]]:
        binding: Any = cast(Any, self._session).io_binding()
        given = {name: np.ascontiguousarray(feeds[name]) for name in self.inputs}
        for name, array in given.items():
            place = array.ctypes.data
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, place)
        for name, array in into.items():
            place = array.ctypes.data
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, place)
        for name in outputs:
            binding.bind_output(name)
        cast(Any, self._session).run_with_iobinding(binding)
        return [value.numpy() for value in binding.get_outputs()[-len(outputs) :]]


@cache
def _bounded() -> bool:
    """Bound what all graphs of this process may allocate: half of the memory that is available.

    A graph that asks for more fails with an error, and the process and the machine go on. False
    where the available memory is not known, or the program around Kutta has an allocator already.
    """
    most = available_memory() // 2
    if not most:
        return False
    library: Any = onnxruntime
    kind = library.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = library.OrtMemoryInfo("Cpu", kind, 0, library.OrtMemType.DEFAULT)
    try:
        library.create_and_register_allocator(place, library.OrtArenaCfg({"max_mem": most}))
    except Exception:  # an allocator is registered already
        return False
    return True

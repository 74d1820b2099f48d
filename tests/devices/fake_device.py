"""GPUs that are not there: tensors that claim to be on one, with their values on the CPU.

FakeTensorMode knows the shape and the device of every tensor, and refuses an operation on tensors
of several devices as a GPU would. It knows no values, so code that asks for one (`if mask.any()`,
`.item()`, `nonzero`) cannot run. Here every fake tensor has its value beside it, computed on the
CPU by the same operations, so that training and search take the same branches as on a real device.

There are two fake devices. CUDA is the device "cuda", for all that needs no gradient. A CPU build
of torch has no device guard for it, without which not even `x[0]` works, so `register_cuda_guard`
registers one that does nothing. A backward pass still fails: autograd asks for the streams of an
accelerator, and a CPU build has none. Training therefore runs on GPU, torch's PrivateUse1 device
under the name "gpu". Both stay registered for as long as the process lives, so import this module
in a process of its own.
"""

import ctypes
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)


class FakeModule(_DummyBackendModule):
    """`torch.gpu`, as far as autocast and recomputation ask it for something."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def device(self, index: int) -> AbstractContextManager[None]:
        return nullcontext()

    def get_rng_state(self, device: Any = None) -> Tensor:
        """Nothing to save: values are drawn by the CPU's generator, which torch saves as well."""
        return torch.empty(0)

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        pass


_setup_privateuseone_for_python_backend("gpu", FakeModule())
CPU, CUDA, GPU = torch.device("cpu"), torch.device("cuda", 0), torch.device("gpu", 0)
DTYPES = {"int64": torch.int64, "float32": torch.float32, "bool": torch.bool}
PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
LIBRARIES = [torch.library.Library(name, "IMPL") for name in ("aten", "_")]  # kept: they unregister


def register_cuda_guard() -> None:
    """Where torch has no device guard for "cuda", take that of "meta", which does nothing.

    torch does the same under FakeTensorMode, but only in CUDA builds on machines without a GPU.
    """
    c10 = ctypes.CDLL(str(next((Path(torch.__file__).parent / "lib").glob("libc10.*"))))
    guards = (ctypes.c_void_p * 15).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    cuda, meta = 1, 14  # c10::DeviceType
    guards[cuda] = guards[cuda] or guards[meta]


def register_autocast(name: str) -> None:
    """Autocast one kind of product on the "gpu", as torch does on "cuda" and on the CPU."""
    key = torch._C.DispatchKey.AutocastPrivateUse1
    product = getattr(torch.ops.aten, name).default

    def low(argument: Any) -> Any:
        is_wide = isinstance(argument, Tensor) and argument.dtype == torch.float32
        return argument.to(torch.get_autocast_dtype("gpu")) if is_wide else argument

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return product(*tree_map(low, args), **tree_map(low, kwargs))

    LIBRARIES[0].impl(product, kernel, "AutocastPrivateUse1")


register_cuda_guard()
for name in PRODUCTS:
    register_autocast(name)
LIBRARIES[1].fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")


@contextmanager
def cuda_is_there() -> Generator[None]:
    """torch.cuda answers autocast and fork_rng, which ask it before any tensor is involved."""
    answers = {
        "amp.common.amp_definitely_not_available": False,
        "is_bf16_supported": True,
        "device_count": 1,
        "get_rng_state": torch.empty(0),
        "set_rng_state": None,
    }
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch(f"torch.cuda.{name}", return_value=answer))
        yield


class FakeDevice(FakeTensorMode):
    """Within it both fake devices exist; real tensors are tensors of the CPU."""

    avoid_device_init = True  # there is nothing that could be asked for memory

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.inside = False  # an operation, whose parts need no values

    def dispatch(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.inside:
            return super().dispatch(func, types, args, kwargs)
        self.inside = True
        try:
            fakes, dependent = super().dispatch(func, types, args, kwargs), False
        except (DataDependentOutputException, DynamicOutputShapeException):
            fakes, dependent = None, True
        finally:
            self.inside = False
        values = func(*tree_map(value_of, args), **tree_map(value_of, kwargs))
        if dependent:
            device = common_device([*args, *kwargs.values()])
            fakes = tree_map(lambda value: self.fake_of(value, device), values)
        for fake, value in zip(tree_flatten(fakes)[0], tree_flatten(values)[0], strict=True):
            if isinstance(fake, FakeTensor):
                assert fake.shape == value.shape
                fake.value, fake.constant = value, None  # a constant would be moved for real
        return fakes

    def fake_of(self, value: Any, device: torch.device) -> Any:
        """A fake tensor like this value, on a device; a number is what it is."""
        return FakeTensor(self, value.to("meta"), device) if isinstance(value, Tensor) else value


def value_of(argument: Any) -> Any:
    """What stands for an argument on the CPU."""
    if isinstance(argument, FakeTensor):
        return argument.value
    return CPU if isinstance(argument, torch.device) else argument


@contextmanager
def arrays() -> Generator[None]:
    """Arrays from fake tensors of the CPU and back; those of a GPU have to be moved there first."""

    def array_of(tensor: Tensor) -> Any:
        if tensor.device.type != "cpu":
            raise TypeError(f"A tensor on {tensor.device} has no array; move it to the CPU.")
        return np.from_dlpack(value_of(tensor)).copy()

    def tensor_of(array: Any) -> Tensor:
        return torch.tensor(array.tolist(), dtype=DTYPES[array.dtype.name]).reshape(array.shape)

    with (
        mock.patch.object(Tensor, "numpy", array_of),
        mock.patch.object(torch, "from_numpy", tensor_of),
    ):
        yield


def common_device(arguments: Any) -> torch.device:
    """The one device of some tensors; single numbers of the CPU go with any."""
    tensors = [t for t in tree_flatten(arguments)[0] if isinstance(t, Tensor)]
    devices = {t.device for t in tensors if t.dim() or t.device.type != "cpu"}
    if len(devices) > 1:
        raise RuntimeError(f"Expected one device, but there are {devices}.")
    return devices.pop() if devices else CPU

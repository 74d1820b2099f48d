"""A GPU that is not there: tensors that claim to be on it, with their values on the CPU.

FakeTensorMode knows the shape and the device of every tensor, and refuses an operation on tensors
of several devices as a GPU would. It knows no values, so code that asks for one (`if mask.any()`,
`.item()`, `nonzero`) cannot run. Here every fake tensor has its value beside it, computed on the
CPU by the same operations, so that training and search take the way they take on a real device.

The device is torch's PrivateUse1, called "gpu": builds of torch without CUDA cannot run a backward
pass over fake tensors of the device "cuda", for they have no streams for it. Nothing that is tested
here asks for more of a device than whether it is a CPU. torch keeps the new device for as long as
the process lives, so a process of its own should import this module.
"""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("gpu")
GPU, CPU = torch.device("gpu", 0), torch.device("cpu")


class FakeDevice(FakeTensorMode):
    """Within it the GPU exists; real tensors are tensors of the CPU."""

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


def common_device(arguments: Any) -> torch.device:
    """The one device of some tensors; single numbers of the CPU go with any."""
    tensors = [t for t in tree_flatten(arguments)[0] if isinstance(t, Tensor)]
    devices = {t.device for t in tensors if t.dim() or t.device.type != "cpu"}
    if len(devices) > 1:
        raise RuntimeError(f"Expected one device, but there are {devices}.")
    return devices.pop() if devices else CPU

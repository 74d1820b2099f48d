"""Lanes: micro-batches of one update in parallel on a CPU, each in its own thread.

Threads that share a product synchronise at every product. A lane waits only to add gradients: it
has its own modules over shared parameters, and gradients are added in the order of the
micro-batches, so that an update does not depend on the number of lanes (to the last bit if each
has one thread; products of several threads round differently).
"""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from kutta.model import TextModel
from kutta.model.dropout import Dropout
from kutta.model.stack import Layer, Stack

T = TypeVar("T")


@dataclass
class Lane:
    """Its modules and their random generator, and the index of the current micro-batch."""

    model: TextModel
    generator: torch.Generator = field(default_factory=torch.Generator)
    place: int = 0


class Lanes:
    """The lanes of a process, and which of them is next to add to each parameter's gradient."""

    def __init__(self, model: TextModel, count: int, threads: int) -> None:
        self._parameters = list(model.parameters())
        # Reused in every update: new ones would fragment the memory freed by batches.
        self._gradients = [torch.empty_like(parameter) for parameter in self._parameters]
        self._turns = [0] * len(self._parameters)
        self._moved = threading.Condition()
        self._failed = False
        self._hooks: list[Any] = []
        self._lanes = [self._lane(model) for _ in range(count)]
        share = max(1, threads // count)
        self._pool = ThreadPoolExecutor(count, "lane", initializer=_use_threads, initargs=(share,))

    def __len__(self) -> int:
        return len(self._lanes)

    def run(self, numbers: Sequence[int], work: Callable[[Lane, int], T]) -> list[T]:
        """work(lane, number), which ends in a backward pass, for each micro-batch; in order."""
        self._failed, self._turns = False, [0] * len(self._parameters)
        results: dict[int, T] = {}
        places = iter(range(len(numbers)))

        def take_in_turn(lane: Lane) -> None:
            """Take the next micro-batch whenever the lane is free; the result is the same."""
            with self._all_or_none():
                while (place := self._next(places)) is not None:
                    lane.place = place
                    results[place] = work(lane, numbers[place])
                    self._pass_the_rest(lane)

        shares = [self._pool.submit(take_in_turn, lane) for lane in self._lanes]
        try:
            with self._all_or_none():
                wait(shares)
        finally:  # after Ctrl-C: wait for the current micro-batches
            wait(shares)
        errors = [error for share in shares if (error := share.exception()) is not None]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, _Abandoned))
        return [results[place] for place in range(len(numbers))]

    @contextmanager
    def _all_or_none(self) -> Generator[None]:
        """Wake all lanes on failure, which would otherwise wait forever."""
        try:
            yield
        except BaseException:
            with self._moved:
                self._failed = True
                self._moved.notify_all()
            raise

    def _next(self, places: Iterator[int]) -> int | None:
        with self._moved:
            return None if self._failed else next(places, None)

    def close(self) -> None:
        """Stop the threads, and remove the hooks, which hold references to the parameters."""
        self._pool.shutdown()
        for hook in self._hooks:
            hook.remove()

    def _lane(self, model: TextModel) -> Lane:
        """A lane: a copy of the modules over the shared parameters."""
        shared: dict[int, object] = {id(p): nn.Parameter(p.detach()) for p in self._parameters}
        lane = Lane(deepcopy(model, shared).train())
        for module in lane.model.modules():
            if isinstance(module, Dropout | Layer | Stack):
                module.generator = lane.generator
        for index, parameter in enumerate(lane.model.parameters()):
            register = cast(Any, parameter).register_post_accumulate_grad_hook  # has no types
            self._hooks.append(register(self._adder(lane, index)))
        return lane

    def _adder(self, lane: Lane, index: int) -> Callable[[Tensor], None]:
        """The hook that runs when a lane has computed the gradient of a parameter."""
        parameter, kept = self._parameters[index], self._gradients[index]

        def add(copy: Tensor) -> None:
            fresh, copy.grad = copy.grad, None
            assert fresh is not None, "called after the gradient is accumulated"
            with self._turn(lane, index):
                if parameter.grad is None:
                    parameter.grad = kept.copy_(fresh)
                else:
                    parameter.grad.add_(fresh)

        return add

    def _pass_the_rest(self, lane: Lane) -> None:
        """Pass on the turns of parameters without a gradient, such as those of a dropped layer."""
        for index, turn in enumerate(self._turns):
            if turn <= lane.place:  # it has not added to this one
                with self._turn(lane, index):
                    pass

    @contextmanager
    def _turn(self, lane: Lane, index: int) -> Generator[None]:
        """Wait until the micro-batches before have had their turn; pass it on afterwards."""
        with self._moved:
            self._moved.wait_for(lambda: self._failed or self._turns[index] == lane.place)
            if self._failed:
                raise _Abandoned
        yield
        with self._moved:
            self._turns[index] += 1
            self._moved.notify_all()


class _Abandoned(Exception):
    """Another lane has failed and raises the reason."""


def _use_threads(count: int) -> None:
    torch.get_num_threads()  # a thread inherits the global number when it is first queried
    torch.set_num_threads(count)

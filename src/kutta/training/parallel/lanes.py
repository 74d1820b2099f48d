"""Lanes: micro-batches of one update side by side on a CPU, each in a thread of its own.

Threads that share every product wait for each other at every product. A lane waits only where
gradients are added up: it has modules of its own over the parameters of all, and gradients are
added in the order of the micro-batches, so that an update is what one lane would make of it
(to the last bit where each has one thread; products of several threads round differently).
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
    """Modules of its own, what they draw from, and the place of the micro-batch in hand."""

    model: TextModel
    generator: torch.Generator = field(default_factory=torch.Generator)
    place: int = 0
    added: set[int] = field(default_factory=set[int])  # the gradients it has given for it


class Lanes:
    """The lanes of a process, and whose turn it is to add to the gradient of each parameter."""

    def __init__(self, model: TextModel, count: int, threads: int) -> None:
        self._parameters = list(model.parameters())
        # Kept from update to update: taken anew, they would lie between what batches leave behind.
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
        """work(lane, number) of each micro-batch, which ends in its backward pass; in order."""
        self._failed, self._turns = False, [0] * len(self._parameters)
        results: dict[int, T] = {}
        places = iter(range(len(numbers)))

        def take_in_turn(lane: Lane) -> None:
            """Whichever lane is free takes the next one: what comes of it is the same."""
            with self._all_or_none():
                while (place := self._next(places)) is not None:
                    lane.place, lane.added = place, set()
                    results[place] = work(lane, numbers[place])
                    self._pass_the_rest(lane)

        shares = [self._pool.submit(take_in_turn, lane) for lane in self._lanes]
        try:
            with self._all_or_none():
                wait(shares)
        finally:  # after Ctrl-C: lanes come to the end of what they have in hand
            wait(shares)
        errors = [error for share in shares if (error := share.exception()) is not None]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, _Abandoned))
        return [results[place] for place in range(len(numbers))]

    @contextmanager
    def _all_or_none(self) -> Generator[None]:
        """Tell all lanes where something fails: they would wait for ever."""
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
        """End the threads, and let go of the parameters: hooks would hold on to them for ever."""
        self._pool.shutdown()
        for hook in self._hooks:
            hook.remove()

    def _lane(self, model: TextModel) -> Lane:
        """Modules of its own over the parameters of all."""
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
        """What happens when a lane has computed the gradient of a parameter."""
        parameter, kept = self._parameters[index], self._gradients[index]

        def add(copy: Tensor) -> None:
            fresh, copy.grad = copy.grad, None
            assert fresh is not None, "called behind the gradient"
            self._wait_for_turn(lane, index)
            if parameter.grad is None:
                parameter.grad = kept.copy_(fresh)
            else:
                parameter.grad.add_(fresh)
            lane.added.add(index)
            self._pass_on(index)

        return add

    def _pass_the_rest(self, lane: Lane) -> None:
        """Pass on the turns of parameters that had no part in a batch, as in a dropped layer."""
        for index in range(len(self._parameters)):
            if index not in lane.added:
                self._wait_for_turn(lane, index)
                self._pass_on(index)

    def _wait_for_turn(self, lane: Lane, index: int) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self._failed or self._turns[index] == lane.place)
            if self._failed:
                raise _Abandoned

    def _pass_on(self, index: int) -> None:
        with self._moved:
            self._turns[index] += 1
            self._moved.notify_all()


class _Abandoned(Exception):
    """Another lane has failed, and has said why."""


def _use_threads(count: int) -> None:
    torch.get_num_threads()  # a thread takes over the number of all when it is first asked for it
    torch.set_num_threads(count)

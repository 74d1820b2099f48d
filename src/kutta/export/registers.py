"""The registers of a program: every value has one of its own, until values share them."""

from collections import defaultdict
from typing import Any

Operation = dict[str, Any]  # as program.json has it, with values in the place of registers


def needed(operations: list[Operation]) -> list[Operation]:
    """The operations that have an effect: a ReLU that a product computes has none."""
    wanted: set[int] = set()
    kept: list[Operation] = []
    for operation in reversed(operations):
        if "to" not in operation or operation["to"] in wanted:
            kept.append(operation)
            wanted.update(operation["from"])
    return kept[::-1]


def share_registers(operations: list[Operation], widths: list[int]) -> list[int]:
    """Let values that are not needed at the same time share registers; returns their widths."""
    last = {value: n for n, operation in enumerate(operations) for value in operation["from"]}
    shared: list[int] = []
    free = defaultdict[int, list[int]](list)  # registers by width
    place: dict[int, int] = {}
    for n, operation in enumerate(operations):
        read: list[int] = list(dict.fromkeys(operation["from"]))
        operation["from"] = [place[value] for value in operation["from"]]
        if "to" in operation:  # before those that are read here are free: it is another one
            value: int = operation["to"]
            unused = free[widths[value]]
            if not unused:
                unused.append(len(shared))
                shared.append(widths[value])
            operation["to"] = place[value] = unused.pop()
        for value in read:
            if last[value] == n:
                free[widths[value]].append(place[value])
    return shared

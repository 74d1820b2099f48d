"""Commands that are killed, or whose disk fails, at any of their file operations.

After each: the run that was there is whole, the same command ends as if nothing had happened, and
everything on the disk is what it is without the fault, bit by bit.
"""

import errno
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults import disk
from tests.faults.children import KILLED, Ended, in_child, run
from tests.faults.disk import KILL, POWER, TORN, Fault
from tests.faults.scenes import SCENES, Scene, leftovers, state_of, whole
from tests.faults.tally import Tally

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
NAMES = {KILL: "killed", TORN: "killed amid a write", POWER: "power lost"}


def name_of(fault: Fault) -> str:
    error = f"{errno.errorcode.get(fault.effect)}, {'lasting' if fault.lasting else 'once'}"
    return NAMES.get(fault.effect, error)


@dataclass(frozen=True)
class Stage:
    """A scene, and what it leads to without a fault."""

    scene: Scene
    home: Path

    @property
    def undisturbed(self) -> tuple[int, dict[str, bytes]]:
        """The number of operations without a fault, and the state at the end."""
        if self not in _UNDISTURBED:
            ended = self._act(disk.NOTHING)
            if ended.code:
                raise RuntimeError(f"{self.scene.name}: {ended.err}")
            count = int((self.home / "count").read_text())
            _UNDISTURBED[self] = count, state_of(self.place)
        return _UNDISTURBED[self]

    @property
    def place(self) -> Path:
        return self.home / "place"

    def problem(self, *faults: Fault) -> str:
        """What is wrong after the command was disturbed, once or several times; or nothing."""
        (_, expected), ended = self.undisturbed, None
        for i, fault in enumerate(faults):
            ended = self._act(fault, fresh=i == 0)
            if fault.effect <= 0 and ended.code == KILLED:
                disk.lose_unflushed(self.place, self.home / "report")
            elif problem := ended.problem():
                return problem
            elif ended.code == 0 and (wrong := _differences(state_of(self.place), expected)):
                return f"it ended well, but {wrong}"
            if wrong := self._lost():
                return wrong
        return self._again(expected)

    def _act(self, fault: Fault, fresh: bool = True) -> Ended:
        if fresh:
            shutil.rmtree(self.place, ignore_errors=True)
            shutil.copytree(self.home / self.scene.before, self.place, symlinks=True)

        def act() -> None:
            disk.arm(self.place, self.home / "report", fault)
            try:
                run(self.scene.words, self.place)()
            finally:
                (self.home / "count").write_text(str(disk.disarm()))

        return in_child(act, self.home)

    def _lost(self) -> str:
        """What is missing of what was there before, before the command is given again."""
        before = self.home / self.scene.before
        for path in (*(before / "text").iterdir(), before / "config.toml"):
            if path.read_bytes() != (self.place / path.relative_to(before)).read_bytes():
                return f"{path.name} of the user has changed"
        if self.scene.before == "text":
            return ""
        if wrong := whole(self.place / "run"):
            return f"before it is given again: {wrong}"
        if self.scene.before == "trained":
            ended = in_child(run(("translate", "run", "in.txt"), self.place), self.home)
            if ended.code or ended.out.count(b"\n") != 4:
                return f"the run cannot be used: {ended.err}"
        return ""

    def _again(self, expected: dict[str, bytes]) -> str:
        ended = self._act(disk.NOTHING, fresh=False)
        nothing_left = ended.code == 2 and self.scene.done and self.scene.done in ended.err
        if ended.code and not nothing_left:
            return f"given again, it fails: {ended.err[-300:]}"
        if wrong := _differences(state_of(self.place), expected):
            return f"given again, {wrong}"
        if inside := leftovers(self.place):
            return f"temporary files are left: {inside}"
        return ""


_UNDISTURBED: dict[Stage, tuple[int, dict[str, bytes]]] = {}
Case = tuple[Stage, tuple[Fault, ...]]


def _differences(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """In what a state differs; temporary files are counted elsewhere."""
    names = {name for name in found.keys() | expected.keys() if ".kutta-" not in name}
    wrong = sorted(name for name in names if found.get(name) != expected.get(name))
    return f"these differ: {', '.join(wrong[:5])}" if wrong else ""


def kills(home: Path, draw: random.Random) -> Iterator[Case]:
    """A kill before each operation in random order, and in turn with it one of another kind."""
    stages = [Stage(scene, home) for scene in SCENES]
    others = other_kills(stages, draw)
    for case in _in_turn(
        draw, [[(stage, (Fault(n, KILL),)) for n in _numbers(stage)] for stage in stages]
    ):
        yield case
        yield next(others)
    yield from others


def other_kills(stages: list[Stage], draw: random.Random) -> Iterator[Case]:
    """Kills amid a write and losses of power, one or two in a row, without end."""
    while True:
        stage, times = draw.choice(stages), draw.choice((1, 1, 2))
        effects = [draw.choice((TORN, POWER, POWER)) for _ in range(times)]
        yield stage, tuple(Fault(draw.choice(_numbers(stage)), effect) for effect in effects)


def errors(home: Path, draw: random.Random) -> Iterator[Case]:
    """An error at each operation, lasting or not, in random order."""
    kinds = [(code, lasting) for code in ERRORS for lasting in (False, True)]
    stages = [Stage(scene, home) for scene in SCENES]
    yield from _in_turn(
        draw,
        [
            [(stage, (Fault(n, *kind),)) for n in _numbers(stage) for kind in kinds]
            for stage in stages
        ],
    )


def _in_turn(draw: random.Random, lists: list[list[Case]]) -> Iterator[Case]:
    """The cases of several lists in turn, each in random order."""
    for cases in lists:
        draw.shuffle(cases)
    while lists := [cases for cases in lists if cases]:
        for cases in lists:
            yield cases.pop()


def _numbers(stage: Stage) -> range:
    return range(1, stage.undisturbed[0] + 1)


def try_all(cases: Iterator[Case], tally: Tally) -> None:
    """Try cases until the time is over."""
    for stage, faults in cases:
        if tally.is_over():
            return
        tally.outcomes.update(name_of(one) for one in faults)
        what = " then ".join(f"{name_of(one)} at {one.number}" for one in faults)
        tally.add(stage.scene.name, stage.problem(*faults), what)

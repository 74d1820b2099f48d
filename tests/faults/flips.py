"""Flipped bits in every kind of file: refused by name, or nothing changes."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from kutta.errors import InputError
from kutta.runs import Run
from kutta.translate import Translator
from tests.faults.children import in_child, run
from tests.faults.faults import flip
from tests.faults.scenes import TEXT, state_of
from tests.faults.tally import Tally

AT_ONCE = 25  # flips of one child


def translated(model: Path) -> list[str]:
    return Translator.load(model).translate(TEXT.splitlines())


def pairs(folder: Path, name: str) -> list[list[int]]:
    """Everything that training reads from a store."""
    store = getattr(Run.load(folder), f"{name}_store")()
    found = [side.tolist() for pair in store.gather(range(len(store))) for side in pair]
    return [*found, *(lengths.tolist() for lengths in store.lengths())]


def best(folder: Path) -> list[bytes]:
    """The weights of the last checkpoint."""
    model = Run.load(folder, checkpoint="last").load_model()
    return [tensor.numpy().tobytes() for tensor in model.state_dict().values()]


READERS: dict[str, Callable[[Path], object]] = {
    "config.json": translated,
    "tokenizer.model": translated,
    "model.safetensors": translated,
    "checksums.json": translated,
    "store/train.arrow": lambda folder: pairs(folder, "train"),
    "store/valid.arrow": lambda folder: pairs(folder, "valid"),
    "store/report.json": lambda folder: Run.load(folder).read_report(),
    "store/checksums.json": lambda folder: pairs(folder, "train"),
    "text/valid.source": lambda folder: Run.load(folder).texts.valid(),
    "text/valid.target": lambda folder: Run.load(folder).texts.valid(),
    "text/test/test.source": lambda folder: Run.load(folder).texts.test("test"),
    "text/checksums.json": lambda folder: Run.load(folder).texts.valid(),
    "metrics.jsonl": lambda folder: list(Run.load(folder).records()),
    "checkpoints/step-00000004/state.json": best,
    "checkpoints/step-00000004/model.safetensors": best,
    "checkpoints/step-00000004/checksums.json": best,
}
EXPORTED = (
    *("export.json", "config.json", "tokenizer.model", "checksums.json"),
    *("encoder.onnx", "decoder.onnx"),
)
RESUMED = ("model.safetensors", "optimizer.safetensors", "state.json", "checksums.json")


def try_flips(home: Path, draw: random.Random, tally: Tally) -> None:
    """Flip bits in all kinds of files, in turn, until the time is over."""
    readers = [("trained/run", name, read) for name, read in READERS.items()]
    readers += [("exported/exported", name, translated) for name in EXPORTED]
    resuming = Resuming(home)
    while True:
        for folder, name, read in readers:
            _flip_and_read(home, folder, name, read, draw, tally)
            if tally.is_over():
                return
        for name in RESUMED:
            resuming.flip(name, draw, tally)
            if tally.is_over():
                return


def _flip_and_read(
    home: Path,
    folder: str,
    name: str,
    read: Callable[[Path], object],
    draw: random.Random,
    tally: Tally,
) -> None:
    """Flip bits of a file, one after the other, and read it in a child."""
    place, results = home / "flipped", home / "flips.json"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(home / folder, place)
    path, group = place / name, f"{folder.partition('/')[2]}/{name}"
    last = 8 * path.stat().st_size - 1
    bits = [draw.randint(0, last) for _ in range(AT_ONCE)]
    results.unlink(missing_ok=True)

    def act() -> None:
        intact, found = read(place), list[tuple[int, str]]()
        for bit in bits:
            flip(path, bit)
            found.append((bit, _outcome(path, read, place, intact)))
            flip(path, bit)
            results.write_text(json.dumps(found))
        if read(place) != intact:
            raise AssertionError("the file was not mended")

    ended = in_child(act, home)
    done = json.loads(results.read_text()) if results.is_file() else []
    for bit, outcome in done:
        wrong = outcome not in ("refused", "unchanged")
        tally.outcomes["wrong" if wrong else outcome] += 1
        tally.add(group, outcome if wrong else "", f"bit {bit}")
    if ended.code:
        tally.add(
            group, f"exit code {ended.code}: {ended.err[-300:]}", f"bits {bits[len(done) :][:1]}"
        )


def _outcome(path: Path, read: Callable[[Path], object], place: Path, intact: object) -> str:
    try:
        found = read(place)
    except InputError as error:
        told = str(error)
        named = path.name in told or path.parent.name in told
        return "refused" if named and "\n" not in told else f"refused without its name: {told}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "unchanged" if found == intact else "something else was read, without a word"


class Resuming:
    """Training from checkpoints of which the newest has a flipped bit."""

    def __init__(self, home: Path) -> None:
        self.home, self.place = home, home / "flipped"
        self._begin()
        self._train()
        self.expected = state_of(self.place)

    def flip(self, name: str, draw: random.Random, tally: Tally) -> None:
        self._begin()
        path = self.place / "run" / "checkpoints" / "step-00000002" / name
        bit = draw.randint(0, 8 * path.stat().st_size - 1)
        flip(path, bit)
        ended = self._train()
        shutil.rmtree(path.parent.with_name(f"{path.parent.name}.damaged"), ignore_errors=True)
        told = "step-00000002 is damaged" in ended.err
        problem = ended.problem((0,))
        if not problem and state_of(self.place) != self.expected:
            problem = "the result differs"
        tally.outcomes["resumed from the one before" if told else "unchanged"] += 1
        tally.add(f"resuming, {name}", problem, f"bit {bit}")

    def _begin(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.home / "half", self.place)

    def _train(self):
        return in_child(run(("train", "config.toml"), self.place), self.home)

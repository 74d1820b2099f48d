"""What checksums cost: reading weights, saving a checkpoint, opening and reading a store.

Everything is measured with the checks and without them, taking turns, in CPU seconds, so that other
processes do not count, and from the page cache. `--help` says what can be chosen.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from kutta.data.ragged import Ragged
from kutta.data.store import ROWS, Store, write_chunks
from kutta.integrity import MANIFEST, Sums, write_manifest
from kutta.model.weights import read_tensors, write_tensors

LENGTH = 30  # tokens of a side


def timed(act: Callable[[], object]) -> float:
    """The CPU seconds that something takes."""
    started = time.process_time()
    act()
    return time.process_time() - started


def make_weights(folder: Path, parameters: int) -> Path:
    """Weights of this many parameters in tensors of a million."""
    torch.manual_seed(1)
    rows = {f"layer.{i}": torch.randn(1000, 1000) for i in range(parameters // 1_000_000)}
    write_tensors(rows, folder / "model.safetensors")
    return folder / "model.safetensors"


def make_store(folder: Path, pairs: int) -> Path:
    """A store of this many pairs of random ids."""
    random = np.random.default_rng(1)

    def chunk(rows: int) -> tuple[Ragged, Ragged]:
        lengths = np.full(rows, LENGTH, np.int32)
        ids = random.integers(4, 32_000, (2, rows * LENGTH)).astype(np.uint16)
        return Ragged(ids[0], lengths), Ragged(ids[1], lengths)

    groups = (chunk(min(ROWS, pairs - first)) for first in range(0, pairs, ROWS))
    write_chunks(folder / "train.arrow", groups, 32_000)
    return folder / "train.arrow"


def epoch(path: Path, batch: int = 256) -> None:
    """Every pair of a store once, in random order."""
    store = Store.open(path)
    order = np.random.default_rng(2).permutation(len(store))
    for first in range(0, len(order), batch):
        store.gather(order[first : first + batch])


def compare(what: str, path: Path, act: Callable[[], object], rounds: int) -> None:
    """Print the median times with the manifest of a folder and without it."""
    manifest, hidden = path.parent / MANIFEST, path.parent / "hidden"
    act()  # fills the page cache
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        times[True].append(timed(act))
        manifest.rename(hidden)
        times[False].append(timed(act))
        hidden.rename(manifest)
    checked, plain = (median(times[with_sums]) for with_sums in (True, False))
    megabytes = path.stat().st_size / 1e6
    print(
        f"{what:<32}{megabytes:8,.0f} MB{plain:9.3f} s without{checked:9.3f} s with checksums"
        f"{checked - plain:+9.3f} s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=60_000_000, help="of the model")
    parser.add_argument("--pairs", type=int, default=200_000, help="of the store")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to be measured")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as place:
        folder = Path(place)
        weights = make_weights(folder / "model", given.parameters)
        tensors = read_tensors(weights)
        saving = timed(lambda: write_tensors(tensors, folder / "again.safetensors"))
        summing = timed(lambda: write_manifest(weights.parent))
        compare("reading weights", weights, lambda: read_tensors(weights), given.rounds)
        print(f"{'saving weights':<32}{saving:29.3f} s, and {summing:.3f} s for their checksums")
        store = make_store(folder / "store", given.pairs)
        rate = store.stat().st_size / timed(lambda: Sums.of(store)) / 1e6
        write_manifest(store.parent)
        compare("opening a store", store, lambda: Store.open(store), given.rounds)
        compare("first epoch over a store", store, lambda: epoch(store), given.rounds)
        print(f"SHA-256 of a store: {rate:,.0f} MB/s")


if __name__ == "__main__":
    main()

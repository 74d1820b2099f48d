"""Kill, fail, flip, deceive: what Kutta withstands, tried at random for a given time.

python -m tests.faults.torture                     twenty minutes (make torture)
python -m tests.faults.torture --seconds 60 --only kills,flips
python -m tests.faults.torture --short --plants    a little of each part (make test)

With --plants, mechanisms are switched off as well, and the part that needs each has to notice.
"""

import argparse
import json
import math
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import disk

# Parts, and their shares of the time.
SHARES = {
    "kills": 0.40,
    "errors": 0.42,
    "flips": 0.03,
    "directories": 0.03,
    "readers": 0.09,
    "guided": 0.015,
    "text": 0.015,
}
# How much of each part --short tries, whatever time it takes.
SHORT = {"kills": 11, "errors": 11, "flips": 150, "directories": 20, "readers": 8800, "text": 240}
ON_DISK = ("kills", "errors")  # parts that need disk.c
SECONDS_OF_A_PLANT = 60


def torture(
    seconds: float, seed: int, only: list[str], short: bool, plants: bool, home: Path
) -> dict[str, Any]:
    """Try all parts, one after the other; return the report."""
    from tests.faults.scenes import build
    from tests.faults.tally import Tally

    warm_up(home)
    build(home)
    report: dict[str, Any] = {"seed": seed, "parts": {}, "plants": {}}
    report["machine"] = f"{platform.system()}, Python {platform.python_version()}"
    total = sum(SHARES[name] for name in only)
    for name in only:
        tally = Tally(math.inf, SHORT[name]) if short else Tally(seconds * SHARES[name] / total)
        attempt = parts()[name]
        reason = "" if name not in ON_DISK or disk.is_preloaded() else "no C compiler for disk.c"
        reason = reason or attempt(home, seed, tally) or ""
        report["parts"][name] = tally.to_dict() | ({"skipped": reason} if reason else {})
        print(f"{name}: {tally.tried.total():,} tried, {len(tally.problems)} wrong. {reason}")
        for problem in tally.problems[:10]:
            print(f"  {problem[:600]}")
    if plants:
        report["plants"] = try_plants(home, seed, only)
    return report


def parts() -> dict[str, Callable[[Path, int, Any], str | None]]:
    """What each part does with a folder, a seed and a tally; a sentence if it could not."""
    from tests.faults import flips, fuzz, hostile, interrupt, scripts

    def draw(seed: int) -> random.Random:
        return random.Random(seed)

    return {
        "kills": lambda home, seed, tally: interrupt.try_all(
            interrupt.kills(home, draw(seed)), tally
        ),
        "errors": lambda home, seed, tally: interrupt.try_all(
            interrupt.errors(home, draw(seed)), tally
        ),
        "flips": lambda home, seed, tally: flips.try_flips(home, draw(seed), tally),
        "directories": lambda home, seed, tally: hostile.try_directories(home, draw(seed), tally),
        "readers": lambda home, seed, tally: fuzz.try_readers(home, str(seed), tally),
        "guided": guided,
        "text": lambda home, seed, tally: scripts.try_text(home, draw(seed), tally),
    }


def warm_up(home: Path) -> None:
    """Load in this process all that commands load, so that its children need not."""
    from tests.conftest import write_toy_corpus
    from tests.faults import plants, scenes  # noqa: F401 (loaded here)
    from tests.test_cli import kutta

    place = home / "warm"
    write_toy_corpus(place / "text", 24)
    (place / "in.txt").write_text(scenes.TEXT)
    (place / "config.toml").write_text(scenes.CONFIG)
    (place / "tiny.toml").write_text(scenes.EXPERIMENT.replace("DIR", "text"))
    for words in (
        ("train", "config.toml"),
        ("export", "run", "exported"),
        ("evaluate", "run"),
        ("translate", "exported", "in.txt"),
        ("info", "run"),
        ("reproduce", "tiny.toml", "--out", "reproduced"),
    ):
        answer = kutta(*words, cwd=place)
        if answer.code:
            raise SystemExit(f"kutta {' '.join(words)}: {answer.err}")


def guided(home: Path, seed: int, tally: Any) -> str | None:
    """Fuzz the readers with atheris, in a process of its own."""
    try:
        import atheris  # noqa: F401
    except ImportError:
        return "atheris is not installed (pip install atheris)"
    scratch = home / "guided"
    words = [str(home), str(int(tally.seconds)), str(seed), str(scratch)]
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [sys.executable, "-m", "tests.faults.guided", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    found = re.findall(r"Done (\d+) runs", done.stderr) or re.findall(r"#(\d+)\s", done.stderr)
    wrong = f"exit code {done.returncode}: {done.stderr[-600:]}" if done.returncode else ""
    tally.add("all readers", wrong, f"seed {seed}", int(found[-1]) if found else 0)
    return None


def try_plants(home: Path, seed: int, only: list[str]) -> dict[str, bool]:
    """Switch off one mechanism after the other, each in a child; whether that is noticed."""
    from tests.faults.children import in_child
    from tests.faults.plants import PLANTS, is_noticed

    found: dict[str, bool] = {}
    for plant in PLANTS:
        if plant.part not in only or (plant.part in ON_DISK and not disk.is_preloaded()):
            continue
        scratch = home / "plant"
        scratch.mkdir(exist_ok=True)

        def act(plant: Any = plant) -> None:
            if not is_noticed(plant, home, seed, SECONDS_OF_A_PLANT):
                raise SystemExit("nothing was noticed")

        ended = in_child(act, scratch, at_most=4 * SECONDS_OF_A_PLANT)
        found[plant.mechanism] = ended.code == 0
        print(f"without '{plant.mechanism}': {'noticed' if ended.code == 0 else ended.err}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1200, help="time for all parts")
    parser.add_argument("--seed", type=int, default=1, help="the same seed tries the same")
    parser.add_argument("--only", default=",".join(SHARES), help="parts, with commas")
    parser.add_argument("--short", action="store_true", help="a little of each part")
    parser.add_argument("--plants", action="store_true", help="also switch mechanisms off")
    parser.add_argument("--out", type=Path, help="write the report to this JSON file")
    options = parser.parse_args()
    if not disk.is_preloaded():
        try:
            disk.restart(["-m", "tests.faults.torture", *sys.argv[1:]])
        except disk.NoDisk as reason:
            print(f"kills and errors are skipped: {reason}")
    memory = Path("/dev/shm")  # where there is nothing to wait for
    home = Path(tempfile.mkdtemp(prefix="kutta-", dir=memory if memory.is_dir() else None))
    try:
        names = list(SHORT) if options.short else options.only.split(",")
        report = torture(options.seconds, options.seed, names, options.short, options.plants, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    wrong = any(part["problems"] for part in report["parts"].values())
    sys.exit(1 if wrong or not all(report["plants"].values()) else 0)


if __name__ == "__main__":
    main()

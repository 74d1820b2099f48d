"""What toolkits do when training is killed, and when a bit of the model flips.

Each trains a tiny Transformer on invented text, with one thread and one seed:

- uninterrupted, twice: whether it repeats itself at all
- killed (SIGKILL) at a random moment, then the same command again, or what the manual says to
  resume: whether it ends, and whether its weights are those of the uninterrupted training
- with one flipped bit in the file of the final model: whether it is read, and translates otherwise

`--help` says what can be chosen. The peers are installed by `environments.py`.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from environments import DEFAULT, Absent, clean, last_line, python_of
from subjects import SUBJECTS, Subject

# One thread; and older toolkits may read their own checkpoints, which are pickles.
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
}
SLOW = 600  # seconds after which a command counts as endless


def corpus(folder: Path, pairs: int = 400) -> None:
    """Sentences of invented words; the other language says them backwards, in capitals."""
    words, draw = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du"], random.Random(7)
    folder.mkdir(parents=True)
    for name, count in (("train", pairs), ("valid", 20), ("test", 40)):
        lines = [draw.choices(words, k=draw.randint(2, 6)) for _ in range(count)]
        source = "".join(" ".join(line) + "\n" for line in lines)
        target = "".join(" ".join(reversed(line)).upper() + "\n" for line in lines)
        (folder / f"{name}.en").write_text(source)
        (folder / f"{name}.de").write_text(target)
    every = [*words, *(word.upper() for word in words)]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in every))


def run(command: Sequence[str], at: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a folder, with one thread."""
    return subprocess.run(
        command,
        cwd=at,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SLOW,
        env=clean(**VARIABLES),
        check=False,
    )


def killed_after(command: Sequence[str], at: Path, seconds: float) -> bool:
    """Start a command and kill it after some seconds; whether it was still running."""
    process = subprocess.Popen(
        command,
        cwd=at,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean(**VARIABLES),
    )
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


def trained(subject: Subject, python: Path, text: Path, place: Path) -> float:
    """Prepare and train in a new folder without a disturbance; return the seconds of training."""
    place.mkdir()
    subject.prepare(python, text, place)
    start = time.perf_counter()
    done = run(subject.train(python, text, place, False), place)
    if done.returncode:
        raise Absent(f"training fails: {last_line(done.stderr or done.stdout)}")
    return time.perf_counter() - start


def digest(subject: Subject, python: Path, place: Path) -> str:
    """The weights of a model in one word."""
    done = run([str(python), "-c", subject.digest, str(place)], place)
    if done.returncode:
        raise Absent(f"its weights cannot be read: {last_line(done.stderr)}")
    return done.stdout.strip()


def kill(
    subject: Subject, python: Path, text: Path, home: Path, seconds: float, draw: random.Random
) -> str:
    """Kill a training once and resume it; return how that ends."""
    place = home / "killed"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    subject.prepare(python, text, place)
    if not killed_after(
        subject.train(python, text, place, False), place, draw.uniform(0.2, 0.95) * seconds
    ):
        return "ended before"
    done = run(subject.train(python, text, place, True), place)
    if done.returncode:
        return f"does not resume: {last_line(done.stderr or done.stdout)}"
    try:
        same = digest(subject, python, place) == digest(subject, python, home / "first")
    except Absent as error:
        return f"no readable model: {error}"
    return "the same weights" if same else "other weights"


def flip(subject: Subject, python: Path, text: Path, home: Path, draw: random.Random) -> str:
    """Flip a bit of the final model and translate; return what happens."""
    place, good = home / "flipped", home / "first"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(good, place)
    path = subject.model(place)
    data = bytearray(path.read_bytes())
    bit = draw.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    source = (text / "test.en").read_text()
    done = run(subject.translate(python, text, place), place, source)
    if done.returncode:
        return "refused"
    same = subject.lines(done.stdout) == subject.lines((home / "translated").read_text())
    return "read, the same translations" if same else "read, other translations"


def measure(subject: Subject, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All that is measured of a toolkit."""
    python = Path(sys.executable)
    if subject.install:
        python = python_of(subject.name, subject.install, arguments.envs, not arguments.no_install)
    home, text, draw = folder / subject.name, folder / "text", random.Random(arguments.seed)
    home.mkdir()
    seconds = trained(subject, python, text, home / "first")
    trained(subject, python, text, home / "second")
    repeats = len({digest(subject, python, home / name) for name in ("first", "second")}) == 1
    source = (text / "test.en").read_text()
    translated = run(subject.translate(python, text, home / "first"), home / "first", source)
    (home / "translated").write_text(translated.stdout)
    if len(subject.lines(translated.stdout)) < source.count("\n"):
        raise Absent(f"it does not translate: {last_line(translated.stderr)}")
    found: dict[str, Any] = {"version": subject.version, "repeats itself": repeats}
    for name, count, act in (
        ("kills", arguments.kills, lambda: kill(subject, python, text, home, seconds, draw)),
        ("flips", arguments.flips, lambda: flip(subject, python, text, home, draw)),
    ):
        outcomes: dict[str, int] = {}
        for _ in range(count):
            outcome = act()
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        found[name] = outcomes
    return found | {"resuming": subject.resuming}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(one.name for one in SUBJECTS))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--flips", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--envs", type=Path, default=DEFAULT, help="environments of the peers")
    parser.add_argument("--no-install", action="store_true", help="use only what is installed")
    parser.add_argument("--json", type=Path, help="add what was found to this file")
    arguments = parser.parse_args()
    known = arguments.json and arguments.json.is_file()
    results: dict[str, Any] = json.loads(arguments.json.read_text()) if known else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus(folder / "text")
        for subject in SUBJECTS:
            if subject.name not in arguments.only.split(","):
                continue
            try:
                results[subject.name] = measure(subject, arguments, folder)
            except (Absent, subprocess.TimeoutExpired) as error:
                results[subject.name] = {"version": subject.version, "absent": str(error)}
            print(subject.name, json.dumps(results[subject.name], indent=2), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

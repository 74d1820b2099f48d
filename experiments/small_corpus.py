"""Train small models on subsets of Tatoeba English-German and keep what docs/small.md reports.

    kutta data get tatoeba-en-de
    python experiments/small_corpus.py 2000 10000 50000
    python experiments/small_corpus.py 2000 10000 50000 --measure
    python docs/generate.py

Each number is a count of training pairs with a config of its own in experiments/small-corpus. The
subsets are nested, and all are validated and tested on the whole validation and test set. The
config, the metrics, the log and the scores of a run are copied to experiments/results/small-corpus,
without weights and without the paths of the machine.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from kutta import Config
from kutta import train as kutta_train

HERE = Path(__file__).parent
LANGUAGES = ("en", "de")
KEPT = ("config.json", "metrics.jsonl", "train.log", "scores.json")
WARM, UPDATES = 5, 30  # updates before the measured ones; measured ones
LANES = 2  # on as many cores


def subset(corpus: Path, pairs: int, folder: Path) -> None:
    """Write `pairs` training pairs of the corpus to `folder`, with its validation and test set.

    The pairs with the smallest SHA-256 are taken, in the order of the corpus: a random choice that
    does not depend on a generator, and the smaller subset is part of the larger one.
    """
    sides = [(corpus / f"train.{one}").read_text(encoding="utf-8").split("\n") for one in LANGUAGES]
    rows = ["\t".join(pair) for pair in zip(*sides, strict=True)][:-1]
    chosen = sorted(range(len(rows)), key=lambda n: hashlib.sha256(rows[n].encode()).digest())
    folder.mkdir(parents=True, exist_ok=True)
    for side, language in zip(sides, LANGUAGES, strict=True):
        text = "".join(f"{side[n]}\n" for n in sorted(chosen[:pairs]))
        (folder / f"train.{language}").write_text(text, encoding="utf-8")
        for name in ("valid", "test"):
            shutil.copy(corpus / f"{name}.{language}", folder)


def train(pairs: int, text: Path, run: Path, *settings: str) -> None:
    """Train the model for this number of pairs, or resume its training."""
    config = HERE / "small-corpus" / f"{pairs}.toml"
    where = (f"data.dir={text}", f"run={run}")
    kutta("train", str(config), *(f"--set={one}" for one in (*where, *settings)))


def kutta(*arguments: str) -> str:
    """The output of a command of Kutta."""
    command = [sys.executable, "-m", "kutta", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def keep(run: Path, work: Path, results: Path) -> None:
    """Copy the small files of a run, with paths relative to the working folder."""
    results.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        text = (run / name).read_text(encoding="utf-8").replace(f"{work}/", "")
        (results / name).write_text(text, encoding="utf-8")


def measure(pairs: int, text: Path, run: Path, results: Path, rounds: int) -> None:
    """Measure the target tokens per second of updates on two cores, several times."""
    steps = WARM + UPDATES + 1  # the last one is validated before it is reported
    quick = ("best=loss", "valid_bleu=false", "final_model=last", "tensorboard=false", "warmup=1")
    whole = (f"max_steps={steps}", f"save_every={steps}", f"threads={LANES}", f"lanes={LANES}")
    settings = [f"train.{one}" for one in (*quick, *whole)]
    file = HERE / "small-corpus" / f"{pairs}.toml"
    config = Config.load(file, [f"data.dir={text}", f"run={run}", *settings])
    rates: list[float] = []
    for _ in range(rounds):
        shutil.rmtree(run, ignore_errors=True)
        rates.append(rate(config))
    found = {"lanes": LANES, "updates": UPDATES, "tokens_per_second": [round(r) for r in rates]}
    results.mkdir(parents=True, exist_ok=True)
    (results / "speed.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


def rate(config: Config) -> float:
    """Target tokens per second of LANES cores, by the processor time of the updates.

    Unlike the time by the clock, it hardly depends on other programs.
    """
    seen: list[tuple[int, float]] = []
    kutta_train(
        config,
        console=Console(quiet=True),
        on_step=lambda step: seen.append((step.tokens, time.process_time())),
    )
    updates = seen[WARM : WARM + UPDATES]
    seconds = updates[-1][1] - seen[WARM - 1][1]
    return LANES * sum(tokens for tokens, _ in updates) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pairs", type=int, nargs="+", help="numbers of training pairs")
    parser.add_argument("--corpus", type=Path, default=Path("data/tatoeba-en-de"))
    parser.add_argument("--work", type=Path, default=Path("runs/small-corpus"))
    parser.add_argument("--results", type=Path, default=HERE / "results" / "small-corpus")
    parser.add_argument("--set", action="append", default=[], help="a setting for all runs")
    parser.add_argument("--measure", action="store_true", help="only measure the speed")
    parser.add_argument("--rounds", type=int, default=3, help="how often the speed is measured")
    options = parser.parse_args()
    work = options.work.resolve()
    for pairs in options.pairs:
        text, run = work / "data" / str(pairs), work / "runs" / str(pairs)
        results = options.results / str(pairs)
        subset(options.corpus, pairs, text)
        if options.measure:
            measure(pairs, text, work / "measured" / str(pairs), results, options.rounds)
            continue
        train(pairs, text, run, *options.set)
        (run / "scores.json").write_text(kutta("evaluate", str(run), "--json"), encoding="utf-8")
        keep(run, work, results)


if __name__ == "__main__":
    main()

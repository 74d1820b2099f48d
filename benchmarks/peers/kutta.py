"""Kutta, as its users run it: `kutta prepare`, then `kutta train`."""

import sys
from dataclasses import replace
from pathlib import Path

from environments import run, source_of

from kutta import __version__
from kutta.runs.run import METRICS, read_records
from peers.toolkit import (
    DROPOUT,
    ENDLESS,
    RATE,
    SMOOTHING,
    SOURCE,
    TARGET,
    UPDATE_TOKENS,
    WARMUP,
    Case,
    Division,
    Job,
    Place,
    Toolkit,
    number_in,
)

SEED = 1
# What may follow a method's name.
OPTIONS = {
    "": "",
    "recompute": "recompute = true",
    "compile": "compile = true",
    "bf16": 'precision = "bf16"',
}


def config_of(case: Case, text: Path, folder: Path) -> str:
    """Settings of a run that neither saves nor validates while it is watched."""
    solver, _, option = case.method.partition("+")
    size, division = case.size, case.division
    return f"""\
run = '{folder}'

[data]
dir = '{text}'
source = "{SOURCE}"
target = "{TARGET}"
tokenizer = "split"

[model]
d_model = {size.d_model}
ffn = {size.ffn}
heads = {size.heads}
encoder_layers = {size.layers}
decoder_layers = {size.layers}
solver = "{solver}"
relative_positions = 0
dropout = {DROPOUT}
attention_dropout = {DROPOUT}
relu_dropout = {DROPOUT}

[train]
max_steps = {ENDLESS}
batch_tokens = {UPDATE_TOKENS}
pieces = {division.micro_batches}
workers = {division.processes}
lanes = {division.lanes}
lr = {RATE}
warmup = {WARMUP}
label_smoothing = {SMOOTHING}
{OPTIONS[option]}
log_every = 1
save_every = {ENDLESS}
valid_bleu = false
seed = {SEED}
"""


def job(place: Place, case: Case, source: Path | None = None) -> Job:
    """A training by this Kutta, or by the code in another source folder."""
    environment = {"PYTHONPATH": str(source)} if source else {}  # it comes before what is installed
    division = case.division
    ways = (division.micro_batches, division.processes, division.lanes)
    name = "-".join(map(str, (case.size.name, case.method, *ways)))
    folder, config = place.work / name, place.work / f"{name}.toml"
    config.write_text(config_of(case, place.text, folder), encoding="utf-8")
    kutta = [sys.executable, "-m", "kutta"]
    run([*kutta, "prepare", str(config)], **environment)

    def tokens(line: str) -> int | None:
        """The line of an update comes after its record, which has its tokens."""
        update = number_in(r"^step (\d+)  epoch", line)
        if update is None:
            return None
        records = reversed(read_records(folder / METRICS))
        return next(r["tokens"] for r in records if r["step"] == update)

    return Job([*kutta, "train", str(config)], environment, tokens)


def earlier(revision: str, folder: Path) -> Toolkit:
    """Kutta as it was at a revision of this repository, with the packages of this environment."""
    source = source_of(revision, folder)
    return replace(
        TOOLKIT,
        name=f"Kutta {revision}",
        install=((f"kutta=={revision}",),),
        job=lambda place, case: job(place, case, source),
    )


# Both threads in every product, as most peers have it; and side by side.
DIVISIONS = (Division(), Division(8), *(Division(count, lanes=2) for count in (8, 4, 2)))
USUAL = {"tiny": Division(4, lanes=2), "base": Division(8, lanes=2)}  # by itself, on two cores

TOOLKIT = Toolkit(
    name="Kutta",
    install=((f"kutta=={__version__}",),),
    divisions=DIVISIONS,
    job=job,
    methods=("euler", "rk2", "rk4", "rk4+recompute", "euler+bf16"),
    usual=USUAL,
)

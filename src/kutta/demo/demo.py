"""The demo: a built-in corpus and a small model, trained and scored in a few minutes."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kutta.analysis.curves import plot_training
from kutta.commands import evaluate_run
from kutta.config import Config
from kutta.data.corpus import read_pairs
from kutta.demo.grammar import write_corpus
from kutta.ode import TABLEAUX
from kutta.training.run import train
from kutta.translate.translator import Translator

PAIRS = {"train": 40_000, "valid": 500, "test": 1_000}
SAMPLES = 6


def demo_config(folder: Path, solver: str, seed: int) -> Config:
    """The settings of the demo: two layers of width 128, 1,500 small steps."""
    values: dict[str, Any] = {
        "run": str(folder / f"run-{solver}-{seed}"),
        "data": {
            "dir": str(folder / f"text-{seed}"),
            "source": "en",
            "target": "de",
            "test": ["test"],
            "vocab_size": 1500,
            "max_length": 64,
        },
        "model": {
            "d_model": 128,
            "ffn": 256,
            "heads": 4,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "solver": solver,
            "gamma": "learned" if solver in TABLEAUX and solver != "euler" else "tableau",
            "dropout": 0.05,
            "attention_dropout": 0.0,
            "relu_dropout": 0.0,
        },
        "train": {
            "max_steps": 1500,
            "batch_tokens": 512,
            "accumulate": 2,  # one batch for each of two cores
            "lr": 0.005,
            "warmup": 200,
            "adam_betas": [0.9, 0.98],
            "log_every": 50,
            "save_every": 100,
            "valid_every": 300,
            "keep_last": 3,
            "tensorboard": False,
            "seed": seed,
        },
        "decode": {"beam": 4, "length_penalty": 0.6, "average": 3},
    }
    return Config.parse(values, where="the demo")


def run_demo(folder: Path, solver: str, seed: int, overwrite: bool, console: Console) -> float:
    """Write the corpus, train, score on unseen sentences, show samples; return the BLEU."""
    config = demo_config(folder, solver, seed)
    text = Path(config.data.dir)
    if not (text / "test.de").is_file():
        console.print(
            f"Writing {PAIRS['train']:,} English-German pairs of the built-in grammar to {text}"
        )
        write_corpus(text, **PAIRS, seed=seed)
    outcome = train(config, overwrite=overwrite, console=console)
    if outcome.ended == "interrupted":
        raise KeyboardInterrupt
    translator = Translator.load(outcome.run)
    (result,) = evaluate_run(outcome.run)
    console.print()
    console.print(_samples(config, translator))
    for score in result.scores:
        console.print(str(score), highlight=False, markup=False, soft_wrap=True)
    picture = plot_training(outcome.run)
    console.print(_next_steps(outcome.run, picture), highlight=False, markup=False, soft_wrap=True)
    return result.scores[1].value


def _samples(config: Config, translator: Translator) -> Table:
    """A few unseen sentences with their translations and references."""
    pairs = list(read_pairs(config.data, "test"))[:SAMPLES]
    found = translator.translate([source for source, _ in pairs])
    table = Table(title="Sentences the model has never seen", show_lines=True)
    for column in ("source", "translation", "correct, or the reference"):
        table.add_column(column)
    for (source, reference), translation in zip(pairs, found, strict=True):
        table.add_row(source, translation, "yes" if translation == reference else reference)
    return table


def _next_steps(run: Path, picture: Path) -> str:
    return f"""
The training curve is in {picture}. Next steps:

  echo "The small dog sleeps." | kutta translate {run}
  kutta info {run}
  kutta demo --solver rk4            another method, for comparison
  kutta methods                      all methods
  kutta train my-config.toml         your own text; see "Train on your own data" in the README"""

"""Put finished runs into the box of models that are shipped with Kutta.

python tools/ship.py RUN ...
python tools/ship.py --renew --data data/tatoeba-en-de

A run from source to target becomes the model source-target in src/kutta/box: config, tokenizer,
8-bit weights with their graphs, and a model card with the scores of the full and of the 8-bit
weights on the run's test sets. Checkpoints, text, stores, logs and paths of this machine stay out.
The box is changed only if the models are complete and small enough. Runs on other text than Tatoeba
are refused, because the card states the licence of Tatoeba.

With `--renew` the models in the box get the graphs that this version of Kutta writes. Their weights
stay as they are, and the 8-bit scores are measured again on the test text of `--data`.
"""

import argparse
import math
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import Any, cast

from kutta import __version__
from kutta.box import BOX, CARD
from kutta.config import Config
from kutta.errors import InputError
from kutta.export.export import export_run, write_graphs
from kutta.files import atomic_path, write_json, write_text
from kutta.integrity import write_manifest
from kutta.metrics import Score
from kutta.model.int8 import FORMAT
from kutta.model.weights import read_origin, read_shapes
from kutta.parsing import read_json
from kutta.runs import Run
from kutta.runtime.directory import EXPORT
from kutta.runtime.directory import FORMAT as EXPORTED
from kutta.training.card import depth, method_of
from kutta.translate import Translator
from kutta.translate.evaluate import Evaluation, eval_sets, evaluate_set

LIMIT = 16_000_000  # bytes of all models together
CORPUS = "tatoeba-"  # how the names of the corpora start whose terms these are:
LICENCE = "CC BY 2.0 FR"
LICENCE_URL = "https://creativecommons.org/licenses/by/2.0/fr/"
ATTRIBUTION = (
    "Sentences by the contributors of the Tatoeba project (https://tatoeba.org), in the selection "
    "of https://www.manythings.org/anki."
)
SPLIT = (
    "A hash of the English sentence decides whether a pair is for training, validation or test, "
    "so no English sentence is in two of them."
)
LANGUAGES = {"en": "English", "de": "German", "fr": "French", "ro": "Romanian"}
EXAMPLES = {"en": "Where is the station?", "de": "Wo ist der Bahnhof?"}
MAIN_SCORE = "sacreBLEU"  # the first in the card, and that of `kutta models`

LEFT_OUT = ("checkpoints", "store", "tensorboard")  # what translating does not need

Facts = dict[str, Any]


def ship(runs: Sequence[Path], box: Path = BOX, limit: int = LIMIT) -> list[Path]:
    """Make a model of each run and put all of them into the box; return their folders."""
    loaded = {name_of(run): run for run in map(Run.load, runs)}
    if len(loaded) < len(runs):
        raise InputError("Two of the runs have the same languages; give one run per direction.")
    for run in loaded.values():
        check(run)
    with TemporaryDirectory() as place:
        made = {name: make_model(run, Path(place) / name) for name, run in loaded.items()}
        others = [one for one in box.glob("[!._]*/") if one.name not in made]
        total = sum(size_of(folder) for folder in (*others, *made.values()))
        if total > limit:
            raise InputError(
                f"The models in the box would take {total:,} bytes, more than {limit:,}; give "
                "smaller models."
            )
        for name, folder in made.items():
            with atomic_path(box / name) as temporary:
                shutil.copytree(folder, temporary)
    return [box / name for name in made]


def renew(data: Path, box: Path = BOX) -> list[Path]:
    """Write the graphs of the models in the box again, and the scores of their cards."""
    folders = sorted(path.parent for path in box.glob(f"*/{CARD}"))
    for folder in folders:
        run = Run.load(folder)
        with atomic_path(folder) as temporary:
            shutil.copytree(folder, temporary)
            write_graphs(run.load_model(), temporary, "int8")
            exported: Facts = read_json(temporary / EXPORT)
            write_json(temporary / EXPORT, exported | {"format": EXPORTED, "version": __version__})
            write_manifest(temporary)
            facts: Facts = read_json(temporary / CARD)
            found = scored(run, temporary, str(data))
            small = {(one.test, score.name): score.value for one in found for score in one.scores}
            for row in facts["scores"]:
                row["int8"] = small[row["test"], row["metric"]]
            write_json(temporary / CARD, facts)
            write_text(temporary / run.card.name, card_of(facts))
            write_manifest(temporary)
    return folders


def name_of(run: Run) -> str:
    """The name of the model that a run becomes."""
    return f"{run.config.data.source}-{run.config.data.target}"


def check(run: Run) -> None:
    """Reject what cannot be shipped, before minutes of translation."""
    path, config = run.path, run.config
    if run.checkpoint or not run.final_weights.is_file():
        raise InputError(f"{run.folder} is not a finished run; train it to its end first.")
    if config.language_model or not config.data.test:
        raise InputError(f"{path} is not a translation model with a test set; give one.")
    if not Path(config.data.dir).name.startswith(CORPUS):
        raise InputError(
            f"{path} was trained on {config.data.dir}, but the licence is known for {CORPUS}* "
            "only; give a run on that text."
        )
    if FORMAT in read_origin(run.weights):
        raise InputError(f"{run.weights} is already in 8 bits; give the run it was made from.")
    for key, text in texts_in(portable(config).model_dump()):
        if any(kind(text).is_absolute() for kind in (PurePosixPath, PureWindowsPath)):
            raise InputError(f"{path}: {key} = {text!r} is a path of this machine; change it.")


def portable(config: Config) -> Config:
    """The config without paths of this machine; its hash stays the same."""
    data = config.data.model_copy(update={"dir": f"data/{Path(config.data.dir).name}"})
    run = f"runs/{config.data.source}-{config.data.target}"
    return config.model_copy(update={"run": run, "data": data})


def texts_in(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every setting that is a text, with its full name."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from texts_in(cast(Mapping[str, Any], value), f"{prefix}{key}.")
        else:
            inside = cast(list[Any], value) if isinstance(value, list) else [value]
            yield from ((prefix + key, one) for one in inside if isinstance(one, str))


def make_model(run: Run, folder: Path) -> Path:
    """Write the model of a run to a new folder: an exported model, in 8 bits."""
    model = Run(run.path, portable(run.config))
    export_run(model, folder, "int8")
    facts = facts_of(run, scored(run, run.folder), scored(run, folder))
    write_json(folder / CARD, facts)
    write_text(folder / run.card.name, card_of(facts))
    write_manifest(folder)
    return folder


def scored(run: Run, model: Path, data: str | None = None) -> list[Evaluation]:
    """The scores of a model on the test sets of a run; neither folder is changed.

    `data` is the folder of their text, if that is not in the run.
    """
    with TemporaryDirectory() as place:
        shutil.copytree(model, Path(place) / "run", ignore=shutil.ignore_patterns(*LEFT_OUT))
        copy = Run(Path(place) / "run", run.config)
        translator = Translator.load(copy.path, "cpu")
        return [evaluate_set(copy, translator, one) for one in eval_sets(run, data_dir=data)]


def facts_of(run: Run, full: Sequence[Evaluation], small: Sequence[Evaluation]) -> Facts:
    """Everything that the card says."""
    config, model, report = run.config, run.config.model, run.read_report()
    pairs = {name: report[name]["kept"] for name in ("train", "valid")}
    return {
        "name": name_of(run),
        "source": config.data.source,
        "target": config.data.target,
        "parameters": sum(map(math.prod, read_shapes(run.weights).values())),
        "method": method_of(model),
        "size": f"d {model.d_model}, ffn {model.ffn}, {model.heads} heads, {depth(config)} layers",
        "corpus": Path(config.data.dir).name,
        "pairs": pairs | {one.test: one.sentences for one in full},
        "licence": LICENCE,
        "attribution": ATTRIBUTION,
        "scores": sorted(scores_of(full, small), key=lambda row: row["metric"] != MAIN_SCORE),
        "signature": {"full": full[0].signature, "int8": small[0].signature},
    }


def scores_of(full: Sequence[Evaluation], small: Sequence[Evaluation]) -> Iterator[Facts]:
    """A row for each test set and metric: the scores of the full and of the 8-bit weights."""
    for one, other in zip(full, small, strict=True):
        both: Iterator[tuple[Score, Score]] = zip(one.scores, other.scores, strict=True)
        for before, after in both:
            yield {
                "test": one.test,
                "metric": before.name,
                "full": before.value,
                "int8": after.value,
                "signature": before.signature,
            }


def card_of(facts: Facts) -> str:
    """The README.md of a model."""
    source, target = (LANGUAGES.get(facts[side], facts[side]) for side in ("source", "target"))
    example = EXAMPLES.get(facts["source"], "...")
    pairs = ", ".join(f"{count:,} {name}" for name, count in facts["pairs"].items())
    scores = [
        f"| {row['test']} | {row['metric']} | {row['full']:.2f} | {row['int8']:.2f} | "
        f"{row['full'] - row['int8']:+.2f} |"
        for row in facts["scores"]
    ]
    # Below the table, as signatures contain its separator.
    signatures = {row["metric"]: row["signature"] for row in facts["scores"]}
    signatures["full weights"] = facts["signature"]["full"]
    signatures["8-bit weights"] = facts["signature"]["int8"]
    again = (
        f"`kutta data get {facts['corpus']}` downloads the text as it is today and splits it so."
    )
    return "\n".join(
        [
            f"# {source} to {target}",
            "",
            "A translation model for short everyday sentences, shipped with Kutta.",
            "",
            "```sh",
            f'echo "{example}" | kutta translate {facts["name"]}',
            "```",
            "",
            "| | |",
            "|---|---|",
            f"| languages | {source} to {target} |",
            f"| method | {facts['method']} |",
            f"| size | {facts['size']}, {facts['parameters']:,} parameters |",
            f"| data | {facts['corpus']}: {pairs} pairs |",
            "| weights | 8-bit integers with a scale per row; vectors and small tensors in fp32 |",
            f"| licence | [{facts['licence']}]({LICENCE_URL}) |",
            "",
            "## Data",
            "",
            textwrap.fill(
                f"{facts['attribution']} {SPLIT} {again}",
                width=100,
                break_long_words=False,
                break_on_hyphens=False,
            ),
            "",
            "## Scores",
            "",
            "| test set | metric | full weights | 8-bit weights | loss |",
            "|---|---|---:|---:|---:|",
            *scores,
            "",
            *(f"- {what}: `{signature}`" for what, signature in signatures.items()),
            "",
        ]
    )


def size_of(folder: Path) -> int:
    """The bytes of the files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> None:
    """Ship the runs of the command line."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="*", help="a finished run")
    parser.add_argument("--renew", action="store_true", help="write the graphs in the box again")
    parser.add_argument("--data", type=Path, help="the text for --renew")
    chosen = parser.parse_args()
    if bool(chosen.runs) == chosen.renew or bool(chosen.data) != chosen.renew:
        parser.error("give runs, or --renew with --data DIR")
    try:
        for folder in renew(chosen.data) if chosen.renew else ship(chosen.runs):
            print(f"{folder}: {size_of(folder):,} bytes")
    except InputError as error:
        print(f"ship: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""A run: a folder that holds everything of one training.

config.json  tokenizer.model | vocab.txt  store/  text/  checkpoints/  metrics.jsonl  train.log
model.safetensors (what `translate` uses)  README.md (model card)  hypotheses/  tensorboard/
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kutta import __version__
from kutta.config import Config
from kutta.data.store import Store
from kutta.data.tokenizer import Tokenizers
from kutta.errors import InputError
from kutta.files import remove, write_text
from kutta.model import TextModel
from kutta.model.build import build_model
from kutta.model.weights import load_weights, read_origin, read_shapes
from kutta.runs.checkpoints import FOLDER, Checkpoint, list_checkpoints, regular_checkpoints
from kutta.runs.texts import Texts

CONFIG, WEIGHTS, METRICS = "config.json", "model.safetensors", "metrics.jsonl"
TEXT = "text"


@dataclass(frozen=True)
class Run:
    """A run directory with its settings, as they were decided when it was begun.

    `checkpoint` is one of its checkpoints where that one's weights are meant, not the final ones.
    """

    path: Path
    config: Config
    checkpoint: Checkpoint | None = None

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """The run in a folder, or that of a checkpoint's folder."""
        folder = Path(folder)
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder}; give the folder of a run.")
        if (folder / CONFIG).is_file():
            return cls(folder, Config.load(folder / CONFIG))
        home = folder.absolute().parent.parent
        if (home / CONFIG).is_file() and folder.absolute().parent.name == FOLDER:
            return cls(home, Config.load(home / CONFIG), Checkpoint(folder))
        raise InputError(
            f"{folder} is not the folder of a run (it has no {CONFIG}); give the folder that "
            "`run` names in the config, or one of its checkpoints."
        )

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether there is a run in a folder: its config.json holds the sections of a config."""
        try:
            values: Any = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(values, dict) and all(name in values for name in Config.model_fields)

    # ---- where things are -------------------------------------------------------------------

    @property
    def weights(self) -> Path:
        """The weights that are meant: the final ones, or those of a checkpoint."""
        return self.checkpoint.weights if self.checkpoint else self.final_weights

    @property
    def final_weights(self) -> Path:
        return self.path / WEIGHTS

    @property
    def card(self) -> Path:
        return self.path / "README.md"

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def log(self) -> Path:
        return self.path / "train.log"

    @property
    def events(self) -> Path:
        """The folder of TensorBoard's events."""
        return self.path / "tensorboard"

    @property
    def hypotheses(self) -> Path:
        """Where translations are kept: in the run, also for its checkpoints, which come and go."""
        folder = self.path / "hypotheses"
        return folder / self.checkpoint.path.name if self.checkpoint else folder

    @property
    def stores(self) -> Path:
        return self.path / "store"

    @property
    def report(self) -> Path:
        """What preparing the text did; written last, so it says that all is there."""
        return self.stores / "report.json"

    @staticmethod
    def config_file(path: Path) -> Path:
        """Where the settings of the run of this folder are kept."""
        return path / CONFIG

    @staticmethod
    def job_file(path: Path) -> Path:
        """Where the name of the launcher's job is kept that trains the run of this folder."""
        return path / "job"

    @property
    def folder(self) -> Path:
        """The folder that was named: the run's, or the checkpoint's."""
        return self.checkpoint.path if self.checkpoint else self.path

    # ---- what is in it ----------------------------------------------------------------------

    @property
    def is_prepared(self) -> bool:
        """Whether the tokenizers and the stores are complete."""
        return self.report.is_file()

    @property
    def is_finished(self) -> bool:
        """Whether there is a final model."""
        return self.is_finished_at(self.path)

    @staticmethod
    def is_finished_at(path: Path) -> bool:
        """Whether the run of this folder has a final model."""
        return (path / WEIGHTS).is_file()

    @cached_property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.path)

    def vocabulary(self) -> dict[str, bytes]:
        """The contents of the tokenizer files, by name."""
        files = [*self.path.glob("tokenizer*.model"), *self.path.glob("vocab*.txt")]
        return {file.name: file.read_bytes() for file in files}

    @property
    def texts(self) -> Texts:
        """Its validation and test text."""
        return Texts(self.path / TEXT, self.config.data)

    def train_store(self) -> Store:
        return Store.open(self.stores / "train.arrow")

    def valid_store(self) -> Store:
        return Store.open(self.stores / "valid.arrow")

    @property
    def has_valid_store(self) -> bool:
        return (self.stores / "valid.arrow").is_file()

    def checkpoints(self) -> list[Checkpoint]:
        """Its finished checkpoints, oldest first."""
        return list_checkpoints(self.path)

    def regular_checkpoints(self) -> list[Checkpoint]:
        """The newest checkpoint and the scheduled ones before it, oldest first."""
        return regular_checkpoints(self.path)

    def read_report(self) -> dict[str, Any]:
        """What preparing the text did."""
        return json.loads(self.report.read_text(encoding="utf-8"))

    def records(self) -> list[dict[str, Any]]:
        """All records of its training."""
        return read_records(self.metrics)

    @staticmethod
    def records_at(path: Path) -> list[dict[str, Any]]:
        """The records of the run in a folder, of which nothing else needs to be there."""
        return read_records(path / METRICS)

    @property
    def signature(self) -> str:
        """What every score of this run, or of the checkpoint, depends on."""
        if self.checkpoint:
            made = f"step:{self.checkpoint.step}"
        else:
            made = read_origin(self.weights) or f"average:{self.config.decode.average}"
        config = self.config
        return f"kutta:{__version__}|config:{config.hash()}|seed:{config.train.seed}|{made}"

    def write_config(self) -> None:
        """Keep the settings in the folder."""
        write_text(self.path / CONFIG, self.config.to_json())

    def remove_text(self) -> None:
        """Remove the stores and the kept text; preparing makes them again."""
        for folder in (self.stores, self.path / TEXT):
            remove(folder)

    # ---- its model --------------------------------------------------------------------------

    def build_model(self) -> TextModel:
        """A freshly initialised model of this run's settings and vocabulary."""
        known = self.tokenizers
        return build_model(self.config.model, len(known.source), len(known.target), known.shared)

    def load_model(self) -> TextModel:
        """The model with the weights that are meant, in evaluation mode."""
        if not self.weights.is_file():
            raise InputError(
                f"There is no {WEIGHTS} in {self.weights.parent} yet: its training has not "
                f"finished; run `kutta train` with its config to resume, or give a folder of "
                f"{self.path / FOLDER}."
            )
        self._check_vocabulary()
        model = self.build_model()
        load_weights(model, self.weights)
        return model.eval()

    def _check_vocabulary(self) -> None:
        """Refuse weights that were trained with a vocabulary of another size."""
        shapes = read_shapes(self.weights)
        sides = ("source", self.tokenizers.source), ("target", self.tokenizers.target)
        for side, tokenizer in sides:
            rows = shapes.get(f"{side}_embedding.tokens.weight", (len(tokenizer),))[0]
            if rows != len(tokenizer):
                raise InputError(
                    f"The model {self.weights} was trained with {rows:,} {side} tokens but the "
                    f"vocabulary in {self.path} has {len(tokenizer):,}; put back the tokenizer it "
                    "was trained with."
                )


def read_records(metrics: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line cut short by a crash is left out."""
    if not metrics.is_file():
        return []
    records: list[dict[str, Any]] = []
    for line in metrics.read_text(encoding="utf-8").split("\n"):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records

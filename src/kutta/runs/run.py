"""A run directory.

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
    """A run directory with its resolved config.

    With a `checkpoint`, the weights are those of the checkpoint and not the final ones.
    """

    path: Path
    config: Config
    checkpoint: Checkpoint | None = None

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """The run in a folder, or the run of a checkpoint's folder."""
        folder = Path(folder)
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder}; give a run directory.")
        if (folder / CONFIG).is_file():
            return cls(folder, Config.load(folder / CONFIG))
        home = folder.absolute().parent.parent
        if (home / CONFIG).is_file() and folder.absolute().parent.name == FOLDER:
            return cls(home, Config.load(home / CONFIG), Checkpoint(folder))
        raise InputError(
            f"{folder} is not a run directory (it has no {CONFIG}); give the folder set as `run` "
            "in the config, or one of its checkpoints."
        )

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether a folder is a run: its config.json has the sections of a config."""
        try:
            values: Any = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(values, dict) and all(name in values for name in Config.model_fields)

    # ---- paths ------------------------------------------------------------------------------

    @property
    def weights(self) -> Path:
        """The final weights, or those of the checkpoint."""
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
        """The folder of TensorBoard events."""
        return self.path / "tensorboard"

    @property
    def hypotheses(self) -> Path:
        """The folder of translations; also for checkpoints it is in the run, as they are pruned."""
        folder = self.path / "hypotheses"
        return folder / self.checkpoint.path.name if self.checkpoint else folder

    @property
    def stores(self) -> Path:
        return self.path / "store"

    @property
    def report(self) -> Path:
        """The report of the preparation; it is written last and marks it as complete."""
        return self.stores / "report.json"

    @staticmethod
    def config_file(path: Path) -> Path:
        """The config file of the run in this folder."""
        return path / CONFIG

    @staticmethod
    def job_file(path: Path) -> Path:
        """The file with the name of the launcher's job that trains the run in this folder."""
        return path / "job"

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the checkpoint."""
        return self.checkpoint.path if self.checkpoint else self.path

    # ---- contents ---------------------------------------------------------------------------

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
        """Whether the run in this folder has a final model."""
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
        """Its complete checkpoints, oldest first."""
        return list_checkpoints(self.path)

    def regular_checkpoints(self) -> list[Checkpoint]:
        """The newest checkpoint and the scheduled ones before it, oldest first."""
        return regular_checkpoints(self.path)

    def read_report(self) -> dict[str, Any]:
        """The report of the preparation."""
        return json.loads(self.report.read_text(encoding="utf-8"))

    def records(self) -> list[dict[str, Any]]:
        """All records of its training."""
        return read_records(self.metrics)

    @staticmethod
    def records_at(path: Path) -> list[dict[str, Any]]:
        """The records of the run in a folder, which needs no other files."""
        return read_records(path / METRICS)

    @property
    def signature(self) -> str:
        """The signature of the weights, for scores: version, config, seed, origin."""
        if self.checkpoint:
            made = f"step:{self.checkpoint.step}"
        else:
            made = read_origin(self.weights) or f"average:{self.config.decode.average}"
        config = self.config
        return f"kutta:{__version__}|config:{config.hash()}|seed:{config.train.seed}|{made}"

    def write_config(self) -> None:
        """Save the config in the run."""
        write_text(self.path / CONFIG, self.config.to_json())

    def remove_text(self) -> None:
        """Remove the stores and the saved text, so that they are prepared again."""
        for folder in (self.stores, self.path / TEXT):
            remove(folder)

    # ---- model ------------------------------------------------------------------------------

    def build_model(self) -> TextModel:
        """A newly initialised model with this run's settings and vocabulary."""
        known = self.tokenizers
        return build_model(self.config.model, len(known.source), len(known.target), known.shared)

    def load_model(self) -> TextModel:
        """The model with the weights of the run or the checkpoint, in evaluation mode."""
        if not self.weights.is_file():
            raise InputError(
                f"There is no {WEIGHTS} in {self.weights.parent}, because training has not "
                f"finished; run `kutta train` with its config to resume, or use a checkpoint in "
                f"{self.path / FOLDER}."
            )
        self._check_vocabulary()
        model = self.build_model()
        load_weights(model, self.weights)
        return model.eval()

    def _check_vocabulary(self) -> None:
        """Reject weights that were trained with a vocabulary of another size."""
        shapes = read_shapes(self.weights)
        sides = ("source", self.tokenizers.source), ("target", self.tokenizers.target)
        for side, tokenizer in sides:
            rows = shapes.get(f"{side}_embedding.tokens.weight", (len(tokenizer),))[0]
            if rows != len(tokenizer):
                raise InputError(
                    f"The model {self.weights} was trained with {rows:,} {side} tokens but the "
                    f"vocabulary in {self.path} has {len(tokenizer):,}; restore the tokenizer it "
                    "was trained with."
                )


def read_records(metrics: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line truncated by a crash is skipped."""
    if not metrics.is_file():
        return []
    records: list[dict[str, Any]] = []
    for line in metrics.read_text(encoding="utf-8").split("\n"):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records

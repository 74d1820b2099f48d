"""A run directory.

config.json  tokenizer.model | vocab.txt  store/  text/  checkpoints/  metrics.jsonl  train.log
model.safetensors (what `translate` uses)  README.md (model card)  hypotheses/  tensorboard/
"""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from warnings import warn

from kutta import __version__
from kutta.box import is_in_box
from kutta.box.hub import find_model
from kutta.config import CONFIG, WEIGHTS, Config
from kutta.contained import check_contained
from kutta.data.store import Store
from kutta.data.tokenizer import Tokenizers, saved_vocabulary
from kutta.errors import InputError
from kutta.integrity import check, recorded
from kutta.model import TextModel
from kutta.model.transformer import build_model
from kutta.model.weights import check_shapes, fill, read_origin, read_shapes, read_tensors
from kutta.parsing import read_json, read_table
from kutta.parsing import read_records as documented_records
from kutta.runs.checkpoints import FOLDER, Checkpoint, inside, list_checkpoints
from kutta.runs.texts import Texts

METRICS = "metrics.jsonl"
MADE = ("final", "average")  # kinds of records that say how the final model was made
JOB = "job"  # the name of the launcher's job that trains the run


@dataclass(frozen=True)
class Run:
    """A run directory with its resolved config.

    With a `checkpoint`, the weights are those of the checkpoint and not the final ones.
    """

    path: Path
    config: Config
    checkpoint: Checkpoint | None = None

    final_weights = inside(WEIGHTS)
    card = inside("README.md")
    metrics = inside(METRICS)
    log = inside("train.log")
    events = inside("tensorboard")
    stores = inside("store")
    report = inside("store/report.json")  # written last: it marks the preparation as complete
    text = inside("text")  # for validation and tests

    @classmethod
    def load(cls, folder: str | Path, checkpoint: str | None = None) -> "Run":
        """The run in a folder or of a checkpoint's folder, or a model of the box or hub by name.

        `checkpoint` chooses its weights: "best", "last" or a step. None is the final model, or the
        checkpoint of the folder.
        """
        if checkpoint is not None:
            return cls.load(folder)._at(checkpoint)
        place = Path(folder).absolute()
        home = place.parent.parent
        if place.parent.name == FOLDER and os.path.isfile(home / CONFIG):  # maybe pruned meanwhile
            check_contained(home)
            return cls(home, Config.load(home / CONFIG), Checkpoint(Path(folder)))
        folder = find_model(folder)
        if (folder / CONFIG).is_file():
            check_contained(folder)
            return cls(folder, Config.load(folder / CONFIG))
        for one in sorted(folder.glob(f"*/{CONFIG}"))[:1]:
            raise InputError(f"{folder} is a folder of runs; give one of them, e.g. {one.parent}.")
        raise InputError(
            f"{folder} is not a run directory (it has no {CONFIG}); give the folder set as `run` "
            "in the config, or one of its checkpoints."
        )

    def _at(self, which: str) -> "Run":
        """This run with the weights of one of its checkpoints."""
        if self.checkpoint:
            raise InputError(
                f"{self.folder} is a checkpoint, so --checkpoint {which} cannot choose another; "
                f"give its run, {self.path}, or remove the option."
            )
        saved = {one.step: one for one in self.checkpoints()}
        if not saved:
            raise InputError(
                f"{self.path} has no checkpoints, so there is none to choose; remove --checkpoint, "
                "or wait until training has saved one."
            )
        last = max(saved)
        if which == "best" and not saved[last].read_state():
            raise InputError(
                f"{saved[last].state} is damaged, so the best checkpoint is not known; choose one "
                f"by its step: {', '.join(map(str, saved))}."
            )
        step = {"last": last, "best": saved[last].best_step}.get(which, which)
        if step == 0:
            raise InputError(
                f"{self.path} has not been validated yet, so no checkpoint is the best; choose "
                "--checkpoint last."
            )
        if str(step).isdecimal() and int(step) in saved:
            return replace(self, checkpoint=saved[int(step)])
        raise InputError(
            f"{self.path} has no checkpoint {which}; choose best, last or one of the steps "
            f"{', '.join(map(str, saved))}."
        )

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether a folder is a run: its config.json has the sections of a config."""
        try:
            values = read_json(path / CONFIG)
        except (OSError, ValueError):
            return False
        return isinstance(values, dict) and all(name in values for name in Config.model_fields)

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the checkpoint."""
        return self.checkpoint.path if self.checkpoint else self.path

    @property
    def weights(self) -> Path:
        """The final weights, or those of the checkpoint."""
        return self.checkpoint.weights if self.checkpoint else self.final_weights

    def outputs(self, kind: str) -> Path:
        """The folder for what a command writes about the model.

        It is in the run, also for checkpoints, as they are pruned. For a model in the box it is in
        the current directory.
        """
        folder = Path(kind) / self.path.name if is_in_box(self.path) else self.path / kind
        return folder / self.checkpoint.path.resolve().name if self.checkpoint else folder

    @property
    def is_prepared(self) -> bool:
        """Whether the tokenizers and the stores are complete."""
        return self.report.is_file()

    @cached_property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.path)

    def vocabulary(self) -> dict[str, bytes]:
        """The contents of the tokenizer files, by name."""
        return saved_vocabulary(self.path)

    @property
    def texts(self) -> Texts:
        """Its validation and test text."""
        return Texts(self.text, self.config.data)

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

    def read_report(self) -> dict[str, Any]:
        """The report of the preparation."""
        check(self.report)
        return read_table(self.report, "prepare the text again with --overwrite")

    def records(self) -> list[dict[str, Any]]:
        """All records of its training."""
        return read_records(self.metrics)

    def passed(self) -> str:
        """That training has continued since the final model was made; empty if it has not."""
        saved = self.checkpoints()
        if not saved or not self.final_weights.is_file():
            return ""
        with suppress(InputError):  # damaged records: when it was made is not known
            made = [one["step"] for one in self.records() if one["kind"] in MADE]
            if made and made[-1] < saved[-1].step:
                return (
                    f"{self.final_weights} was made at step {made[-1]}, but training has since "
                    f"reached step {saved[-1].step}; use that checkpoint (--checkpoint last, or "
                    f"{saved[-1].path}), or run `kutta train {self.path}` to finish."
                )
        return ""

    @property
    def signature(self) -> str:
        """The signature of the weights, for scores: version, config, seed, origin."""
        config = self.config
        return f"kutta:{__version__}|config:{config.hash()}|seed:{config.train.seed}|{self.origin}"

    @property
    def origin(self) -> str:
        """What the weights are: those of a step, or an average of checkpoints."""
        if self.checkpoint:
            return f"step:{self.checkpoint.step}"
        return read_origin(self.weights) or f"average:{self.config.decode.average}"

    def write_config(self) -> None:
        """Save the config in the run."""
        with recorded(self.path / CONFIG, create=True) as temporary:
            temporary.write_text(self.config.to_json(), encoding="utf-8")

    def build_model(self) -> TextModel:
        """A newly initialised model with this run's settings and vocabulary."""
        known = self.tokenizers
        return build_model(self.config.model, len(known.source), len(known.target), known.shared)

    def load_model(self) -> TextModel:
        """The model with the weights of the run or the checkpoint, in evaluation mode."""
        try:
            self._check_sizes()
            tensors = read_tensors(self.weights)
        except InputError:
            if self.weights.is_file():
                raise
            raise InputError(self._without_weights()) from None  # perhaps pruned meanwhile
        if not self.checkpoint and (passed := self.passed()):
            warn(passed, stacklevel=2)
        model = self.build_model()
        fill(model, tensors, str(self.weights))
        return model.eval()

    def _check_sizes(self) -> None:
        """Compare config and vocabulary with the header of the weights: nothing is built before."""
        shapes, tokenizers = read_shapes(self.weights), self.tokenizers
        sizes = {"source": len(tokenizers.source), "target": len(tokenizers.target)}
        for side, known in sizes.items():
            rows = shapes.get(f"{side}_embedding.tokens.weight", (known,))[0]
            if rows != known:
                raise InputError(
                    f"The model {self.weights} was trained with {rows:,} {side} tokens but the "
                    f"vocabulary in {self.path} has {known:,}; restore the tokenizer it "
                    "was trained with."
                )
        source, target = sizes.values()
        shared, where = tokenizers.shared, str(self.weights)
        check_shapes(self.config.model, source, target, shared, shapes, where)

    def _without_weights(self) -> str:
        """Why the weights are missing, in one sentence."""
        if self.checkpoint:
            return (
                f"There is no checkpoint {self.folder}; training keeps the best and the last "
                f"{self.config.train.keep_last} (train.keep_last), so choose another, e.g. with "
                "--checkpoint last."
            )
        return (
            f"There is no {WEIGHTS} in {self.path}, because training has not finished; use a "
            f"checkpoint (--checkpoint best, --checkpoint last, or a folder in "
            f"{self.path / FOLDER}), or run `kutta train {self.path}` to resume."
        )


def read_records(metrics: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line truncated by a crash is skipped."""
    return [*documented_records(metrics)] if metrics.is_file() else []

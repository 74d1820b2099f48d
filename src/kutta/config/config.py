"""The complete config of a run: its directory, [data], [model], [train] and [decode]."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

from pydantic import Field

from kutta.config.data import DataConfig
from kutta.config.decode import DecodeConfig
from kutta.config.load import find_config, read_settings
from kutta.config.mistakes import in_one_sentence
from kutta.config.model import ModelConfig
from kutta.config.section import Section, names_in
from kutta.config.train import TrainConfig
from kutta.errors import InputError
from kutta.integrity import check

CONFIG = "config.json"  # where a run saves its config
WEIGHTS = "model.safetensors"  # and its weights

# Settings that may change when a run resumes: they do not affect what an update computes.
_FREE_KEYS = {
    *("run", "data.dir", "data.test"),
    *("data.split_compounds", "data.raw_references", "data.lowercased"),  # scoring only
    *("train.max_steps", "train.max_bad_steps", "train.patience", "train.best"),
    *("train.device", "train.workers", "train.threads", "train.lanes"),
    *("train.shard", "train.recompute", "train.log_every", "train.tensorboard"),
    *("train.valid_every", "train.valid_bleu"),
    *("train.save_every", "train.keep_last", "train.final_model"),
}


class Config(Section):
    """All settings of a run."""

    run: str = Field(min_length=1, description="run directory")
    data: DataConfig
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    @property
    def language_model(self) -> bool:
        """Whether this is a model of the target text only, without a source."""
        return not self.data.source

    def mistakes(self) -> Iterator[str]:
        data, model, train = self.data, self.model, self.train
        if self.language_model:
            if model.encoder_layers > 0:
                yield (
                    "the setting data.source is missing; add it, or for a language model, which "
                    "has no source, set model.encoder_layers = 0"
                )
            if (model.decoder_solver, model.decoder_gamma) != ("euler", "tableau"):
                yield (
                    "a language model has one stack, whose method is model.solver and model.gamma; "
                    "leave model.decoder_solver and model.decoder_gamma out"
                )
            if data.max_source > 0:
                yield "a language model has no source to cut; leave data.max_source out"
            if train.best == "bleu":
                yield "a language model is not scored by BLEU; set train.best = 'loss'"
        elif model.encoder_layers == 0:
            yield (
                f"model.encoder_layers = 0 makes a language model, which has no source; leave "
                f"data.source = {data.source!r} out, or set model.encoder_layers to 1 or more"
            )
        if train.shard and model.layer_drop > 0:
            yield (
                f"layers cannot be both sharded and skipped at random; set train.shard = false or "
                f"model.layer_drop = 0, not {model.layer_drop}"
            )
        longest = f"a sentence of data.max_length = {data.max_length} tokens plus its end mark"
        if data.max_length + 1 > train.batch_tokens:
            yield (
                f"{longest} does not fit into train.batch_tokens = {train.batch_tokens}; lower "
                "data.max_length or raise train.batch_tokens"
            )
        if data.max_length + 1 > train.micro_tokens:
            yield (
                f"{longest} does not fit into a micro-batch of train.batch_tokens / train.pieces = "
                f"{train.batch_tokens} / {train.pieces} tokens; lower train.pieces or "
                "data.max_length"
            )

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> "Config":
        """Read a .toml file, a preset by its name, or a run's config.json or folder.

        Overrides are "key=value" strings.
        """
        return cls.load_with_origins(path, overrides)[0]

    @classmethod
    def load_with_origins(
        cls, path: str | Path, overrides: Iterable[str] = ()
    ) -> tuple["Config", dict[str, str]]:
        """A config, and the origin of each setting that is not a default."""
        if not isinstance(cast(object, path), str | Path):
            raise InputError(f"Give the path of a config or the name of a preset, not {path!r}.")
        overrides = [overrides] if isinstance(overrides, str) else [*overrides]
        if not all(isinstance(cast(object, override), str) for override in overrides):
            raise InputError(
                f'Give overrides as a list of strings, e.g. ["train.lr=0.001"], not {overrides!r}.'
            )
        file = find_config(path)
        folder, file = (file, _saved_in(file)) if file.is_dir() else (None, file)
        if file.name == CONFIG:
            check(file)
        values, origins = read_settings(file, overrides)
        values = from_earlier(values) if file.suffix == ".json" else values
        written = str(values.get("run")).replace("\0", "")
        moved = folder and Path(written).resolve() != folder.resolve()
        if moved and origins.get("run") != "--set":
            values["run"] = str(folder)
        return cls.parse(values, where=str(file)), origins

    @classmethod
    def parse(cls, values: dict[str, Any], where: str = "the config") -> "Config":
        """Validate plain values; the first mistake is raised as an InputError."""
        with in_one_sentence([*names_in(cls)], where):
            return cls.model_validate(values)

    def to_json(self) -> str:
        """Indented JSON, as it is saved in the run directory."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"

    def conflict(self, other: "Config", sections: Sequence[str]) -> str | None:
        """The first setting of these sections that must be equal in two configs but is not."""
        for key in known_keys():
            mine, others = self.value(key), other.value(key)
            if mine != others and key.split(".")[0] in sections and key not in _FREE_KEYS:
                return f"{key} = {_written(mine)} there, {_written(others)} here"
        return None

    def value(self, key: str) -> Any:
        """The value of a setting by its full name, such as model.solver."""
        return attrgetter(key)(self)

    def hash(self) -> str:
        """Ten hex digits that identify these settings; paths are not included.

        Defaults are left out, so that adding a setting does not change the hash of existing runs.
        Which checkpoints became the final model is part of the signature itself.
        """
        left_out: Any = {"run": True, "data": {"dir"}, "train": {"final_model"}}
        dumped = self.model_dump(mode="json", exclude=left_out, exclude_defaults=True)
        values = {name: section for name, section in dumped.items() if section}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]


def _saved_in(folder: Path) -> Path:
    """The config of the run in a folder."""
    if (folder / CONFIG).is_file():
        return folder / CONFIG
    run = Path(os.path.normpath(folder / ".." / ".."))
    if (run / CONFIG).is_file():
        raise InputError(
            f"{folder} is part of the run {run}, such as a checkpoint; training resumes from the "
            "newest one by itself, so give the folder of the run."
        )
    for one in sorted(folder.glob(f"*/{CONFIG}"))[:1]:
        raise InputError(f"{folder} is a folder of runs; give one of them, e.g. {one.parent}.")
    raise InputError(
        f"{folder} is a folder but not a run (it has no {CONFIG}); give a config file, a preset or "
        "a run directory."
    )


def from_earlier(values: dict[str, Any]) -> dict[str, Any]:
    """The saved settings of a run, completed by what an earlier version did not save."""
    # Earlier versions always tied the embeddings and averaged the last checkpoints.
    for name, known, missing in (
        ("model", "encoder_layers", {"tie_embeddings": True}),
        ("train", "max_steps", {"final_model": "average"}),
    ):
        section: Any = values.get(name)
        if isinstance(section, dict) and known in section:
            values = values | {name: missing | cast(dict[str, Any], section)}
    return values


def _written(value: Any) -> str:
    return json.dumps(value.model_dump() if isinstance(value, Section) else value)


def known_keys() -> list[str]:
    """Every setting by its full name, e.g. model.solver."""
    return [name for name in names_in(Config) if name == "run" or name.count(".") == 1]

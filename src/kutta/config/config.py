"""The complete config of a run, as it is written in a file:

run = "runs/mine"
[data] ...   [model] ...   [train] ...   [decode] ...
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import Field

from kutta.config.data import DataConfig
from kutta.config.decode import DecodeConfig
from kutta.config.load import find_config, read_settings
from kutta.config.mistakes import in_one_sentence
from kutta.config.model import ModelConfig
from kutta.config.section import Section
from kutta.config.train import TrainConfig

# Settings that may change when a run resumes: they do not affect what an update computes.
_FREE_KEYS = frozenset(
    {
        *("run", "data.dir", "data.test"),
        *("data.split_compounds", "data.raw_references", "data.lowercased"),  # scoring only
    }
) | {
    f"train.{name}"
    for name in (
        *("max_steps", "device", "workers", "shard", "threads", "lanes", "recompute"),
        *("log_every", "save_every", "valid_every", "valid_bleu", "patience", "best", "keep_last"),
        "final_model",
        *("max_bad_steps", "tensorboard"),
    )
}


class Config(Section):
    """All settings of a run."""

    run: str = Field(min_length=1, description="run directory")
    data: DataConfig
    model: ModelConfig = Field(default_factory=lambda: ModelConfig())
    train: TrainConfig = Field(default_factory=lambda: TrainConfig())
    decode: DecodeConfig = Field(default_factory=lambda: DecodeConfig())

    @property
    def language_model(self) -> bool:
        """Whether this is a model of the target text only, without a source."""
        return not self.data.source

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        data, model = self.data, self.model
        yield (
            self.language_model and model.encoder_layers > 0,
            "the setting data.source is missing; add it, or for a language model, which has no "
            "source, set model.encoder_layers = 0",
        )
        yield (
            not self.language_model and model.encoder_layers == 0,
            f"model.encoder_layers = 0 makes a language model, which has no source; leave "
            f"data.source = {data.source!r} out, or set model.encoder_layers to 1 or more",
        )
        yield (
            self.language_model
            and (model.decoder_solver, model.decoder_gamma) != ("euler", "tableau"),
            "a language model has one stack, whose method is model.solver and model.gamma; leave "
            "model.decoder_solver and model.decoder_gamma out",
        )
        yield (
            self.language_model and data.max_source > 0,
            "a language model has no source to cut; leave data.max_source out",
        )
        yield (
            self.language_model and self.train.best == "bleu",
            "a language model is not scored by BLEU; set train.best = 'loss'",
        )
        yield (
            self.train.shard and model.layer_drop > 0,
            f"layers cannot be both sharded and skipped at random; set train.shard = false or "
            f"model.layer_drop = 0, not {model.layer_drop}",
        )
        yield (
            data.max_length + 1 > self.train.batch_tokens,
            f"a sentence of data.max_length = {data.max_length} tokens plus its end mark does not "
            f"fit into train.batch_tokens = {self.train.batch_tokens}; lower data.max_length or "
            "raise train.batch_tokens",
        )
        yield (
            data.max_length + 1 > self.train.micro_tokens,
            f"a sentence of data.max_length = {data.max_length} tokens plus its end mark does not "
            f"fit into a micro-batch of train.batch_tokens / train.pieces = "
            f"{self.train.batch_tokens} / {self.train.pieces} tokens; lower train.pieces or "
            "data.max_length",
        )

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> "Config":
        """Read a .toml file, a preset by its name, or a run's config.json.

        Overrides are "key=value" strings.
        """
        return cls.load_with_origins(path, overrides)[0]

    @classmethod
    def load_with_origins(
        cls, path: str | Path, overrides: Iterable[str] = ()
    ) -> tuple["Config", dict[str, str]]:
        """A config, and the origin of each setting that is not a default."""
        file = find_config(path)
        settings = read_settings(file, overrides)
        values = from_earlier(settings.values) if file.suffix == ".json" else settings.values
        return cls.parse(values, where=str(file)), settings.origins

    @classmethod
    def parse(cls, values: dict[str, Any], where: str = "the config") -> "Config":
        """Validate plain values; the first mistake is raised as an InputError."""
        with in_one_sentence([*_names(cls)], where):
            return cls.model_validate(values)

    def to_json(self) -> str:
        """Indented JSON, as it is saved in the run directory."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"

    def conflict(self, other: "Config", sections: Sequence[str]) -> str | None:
        """The first setting of these sections that must be equal in two configs but is not."""
        for key in known_keys():
            if key in _FREE_KEYS or key.split(".")[0] not in sections:
                continue
            mine, others = self.value(key), other.value(key)
            if mine != others:
                return f"{key} = {_written(mine)} there, {_written(others)} here"
        return None

    def value(self, key: str) -> Any:
        """The value of a setting by its full name, such as model.solver."""
        found: Any = self
        for name in key.split("."):
            found = getattr(found, name)
        return found

    def hash(self) -> str:
        """Ten hex digits that identify these settings; paths are not included.

        Defaults are left out, so that adding a setting does not change the hash of existing runs.
        Which checkpoints became the final model is part of the signature itself.
        """
        left_out: Any = {"run": True, "data": {"dir"}, "train": {"final_model"}}
        dumped = self.model_dump(mode="json", exclude=left_out, exclude_defaults=True)
        values = {name: section for name, section in dumped.items() if section}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]


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
    keys: list[str] = []
    for name, info in Config.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, Section):
            keys += [f"{name}.{key}" for key in section.model_fields]
        else:
            keys.append(name)
    return keys


def _names(section: type[Section], prefix: str = "") -> Iterator[str]:
    """Every valid name, of sections and of their settings."""
    for name, info in section.model_fields.items():
        yield prefix + name
        for kind in (info.annotation, *get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from _names(kind, f"{prefix}{name}.")

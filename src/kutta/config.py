"""Settings: typed, validated, read from TOML, kept as JSON beside every model.

The names are those a user writes in a file:

    run = "runs/mine"
    [data] ...   [model] ...   [train] ...   [decode] ...
"""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kutta.errors import InputError
from kutta.mistakes import apply_override, first_mistake, suggest

# Settings that may change when a run goes on: they do not touch what one update computes.
_FREE_KEYS = frozenset({"run", "data.dir", "data.test"}) | {
    f"train.{name}"
    for name in (
        *("max_steps", "device", "threads", "log_every", "save_every", "valid_every"),
        *("valid_bleu", "patience", "best", "keep_last", "max_bad_steps", "tensorboard"),
    )
}


Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


class Section(BaseModel):
    """A group of settings: unknown names are errors, values cannot change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class DataConfig(Section):
    """Where the text is and how it is split into tokens."""

    dir: str = Field(description="folder of the text files")
    source: str = Field(description="source language: the ending of the source files")
    target: str = Field(description="target language: the ending of the target files")
    train: str = Field(
        default="train", description="name of the training files, or a .tsv of pairs"
    )
    valid: str = Field(
        default="valid", description="name of the validation files, or a .tsv of pairs"
    )
    test: list[str] = Field(default_factory=list[str], description="names of the test sets")
    tokenizer: Literal["bpe", "split"] = Field(
        default="bpe", description="learn BPE, or text is split"
    )
    vocab_size: int = Field(default=8000, ge=16, description="tokens of a learned BPE vocabulary")
    vocabulary: list[str] = Field(
        default_factory=list[str],
        description="split text: fairseq dict.txt in dir; two (source, target) unless shared",
    )
    shared_vocab: bool = Field(default=True, description="one vocabulary for both languages")
    bpe_dropout: float = Field(
        default=0.0, ge=0.0, lt=1.0, description="skip merges at random in training"
    )
    max_length: int = Field(default=256, ge=1, description="longest training sentence, in tokens")
    max_ratio: float = Field(
        default=9.0, ge=1.0, description="largest ratio of the two lengths in tokens"
    )


class ModelConfig(Section):
    """Sizes and the numerical method."""

    d_model: int = Field(default=512, ge=2, description="width of the states")
    ffn: int = Field(default=2048, ge=1, description="width inside the feed-forward sublayer")
    heads: int = Field(default=8, ge=1, description="attention heads")
    encoder_layers: int = Field(default=6, ge=1, description="encoder depth")
    decoder_layers: int = Field(default=6, ge=1, description="decoder depth")
    solver: str = Field(default="rk2", description="method of the encoder's blocks")
    gamma: Literal["tableau", "ones", "learned"] = Field(
        default="tableau", description="weights of the stages"
    )
    field: Literal["san+ffn", "san/ffn", "san", "ffn"] = Field(
        default="san+ffn", description="which sublayers a block integrates"
    )
    decoder_solver: str = Field(default="euler", description="method of the decoder's blocks")
    decoder_gamma: Literal["tableau", "ones", "learned"] = Field(
        default="tableau", description="weights of the decoder's stages"
    )
    relative_positions: int = Field(default=8, ge=0, description="clip distance; 0 for none")
    dropout: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="after each sublayer and embedding"
    )
    attention_dropout: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="on attention weights"
    )
    relu_dropout: float = Field(default=0.1, ge=0.0, lt=1.0, description="inside the feed-forward")

    @field_validator("solver", "decoder_solver")
    @classmethod
    def _known_method(cls, name: str) -> str:
        from kutta.ode import METHODS  # here, so that reading settings does not load torch

        if name not in METHODS:
            raise ValueError(f"no method is called {name!r}{suggest(name, METHODS)}")
        return name

    @model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        from kutta.ode import HISTORY_METHODS, TABLEAUX

        if self.d_model % self.heads:
            raise ValueError(f"d_model = {self.d_model} is not a multiple of heads = {self.heads}")
        for method, gamma in (
            (self.solver, self.gamma),
            (self.decoder_solver, self.decoder_gamma),
        ):
            if method in HISTORY_METHODS and self.field != "san+ffn":
                raise ValueError(
                    f"{method} looks back over whole layers, so field must be 'san+ffn', "
                    f"not {self.field!r}"
                )
            if gamma != "tableau" and method not in TABLEAUX:
                raise ValueError(
                    f"gamma = {gamma!r} needs a Runge-Kutta method ({', '.join(TABLEAUX)}); "
                    f"{method} has no gamma"
                )
        return self


class TrainConfig(Section):
    """How the parameters are found."""

    max_steps: int = Field(default=50_000, ge=1, description="updates in all")
    batch_tokens: int = Field(
        default=4096, ge=8, description="rows x longest side of a batch, at most"
    )
    accumulate: int = Field(default=1, ge=1, description="batches added up for one update")
    lr: float = Field(default=0.002, gt=0.0, description="peak learning rate")
    warmup: int = Field(default=4000, ge=1, description="steps of linear warm-up")
    warmup_from: float = Field(
        default=1e-7, ge=0.0, description="learning rate before the first step"
    )
    adam_betas: tuple[Decay, Decay] = Field(default=(0.9, 0.997), description="Adam's decay rates")
    adam_eps: float = Field(default=1e-8, gt=0.0, description="Adam's epsilon")
    clip_norm: float = Field(
        default=0.0, ge=0.0, description="largest gradient norm; 0 for no limit"
    )
    label_smoothing: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="mass spread over all tokens"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(default="fp32", description="arithmetic")
    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:1, ...")
    threads: int = Field(default=0, ge=0, description="CPU threads; 0 leaves it to the machine")
    log_every: int = Field(default=50, ge=1, description="steps between lines of the log")
    save_every: int = Field(default=500, ge=1, description="steps between checkpoints")
    valid_every: int = Field(
        default=0, ge=0, description="steps between validations; 0: as save_every"
    )
    valid_bleu: bool = Field(default=True, description="translate the validation set and score it")
    patience: int = Field(
        default=0, ge=0, description="stop after so many validations without a new best"
    )
    best: Literal["loss", "bleu"] = Field(
        default="loss", description="what the best checkpoint is best at"
    )
    keep_last: int = Field(default=10, ge=1, description="checkpoints kept")
    max_bad_steps: int = Field(
        default=20, ge=1, description="steps with a non-finite loss before giving up"
    )
    tensorboard: bool = Field(default=True, description="write TensorBoard events to the run")
    seed: int = Field(default=1, ge=0, lt=1 << 63, description="everything random follows from it")

    @field_validator("adam_betas", mode="before")
    @classmethod
    def _pair(cls, value: Any) -> Any:
        return tuple(cast(list[Any], value)) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _fits(self) -> "TrainConfig":
        if self.best == "bleu" and not self.valid_bleu:
            raise ValueError("best = 'bleu' needs valid_bleu = true")
        return self


class DecodeConfig(Section):
    """How translations are searched for."""

    beam: int = Field(default=4, ge=1, description="hypotheses kept")
    length_penalty: float = Field(
        default=0.6, description="score = log-probability / length^penalty"
    )
    average: int = Field(
        default=5, ge=1, description="last checkpoints averaged into the final model"
    )
    max_length: int = Field(default=0, ge=0, description="longest translation; 0: 2 x source + 20")
    batch_tokens: int = Field(default=4096, ge=8, description="source tokens translated at once")


class Config(Section):
    """Everything about a run."""

    run: str = Field(description="folder where everything of this run lives")
    data: DataConfig
    model: ModelConfig = Field(default_factory=lambda: ModelConfig())
    train: TrainConfig = Field(default_factory=lambda: TrainConfig())
    decode: DecodeConfig = Field(default_factory=lambda: DecodeConfig())

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        if self.data.max_length + 1 > self.train.batch_tokens:
            raise ValueError(
                f"a sentence of data.max_length = {self.data.max_length} tokens does not fit "
                f"into train.batch_tokens = {self.train.batch_tokens}"
            )
        return self

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> "Config":
        """Read a .toml file (or a run's config.json); overrides are "key=value" strings."""
        path = Path(path)
        kind = "JSON" if path.suffix == ".json" else "TOML"
        try:
            text = path.read_text(encoding="utf-8")
            values = json.loads(text) if kind == "JSON" else tomllib.loads(text)
        except FileNotFoundError:
            raise InputError(f"There is no config file {path}; check the path.") from None
        except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is not readable as {kind}: {error}.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"Cannot read the config {path}: {error}.") from None
        if not isinstance(values, dict):
            raise InputError(f"{path} does not hold a table of settings; give a config.")
        settings = cast(dict[str, Any], values)
        for override in overrides:
            apply_override(settings, override)
        return cls.parse(settings, where=str(path))

    @classmethod
    def parse(cls, values: dict[str, Any], where: str = "the config") -> "Config":
        """Check plain values; the first mistake becomes one sentence."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            known = [*known_keys(), *cls.model_fields]
            raise InputError(f"{where}: {first_mistake(error, known)}") from None

    def to_json(self) -> str:
        """Readable JSON, the form kept in a run directory."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"

    def conflict(self, other: "Config", sections: Sequence[str]) -> str | None:
        """The first setting of these sections that two configs of one run cannot differ in."""
        for key in known_keys():
            if key in _FREE_KEYS or key.split(".")[0] not in sections:
                continue
            mine, others = self.value(key), other.value(key)
            if mine != others:
                return f"{key} = {json.dumps(mine)} there, {json.dumps(others)} here"
        return None

    def value(self, key: str) -> Any:
        """The setting of a full name such as model.solver."""
        found: Any = self
        for name in key.split("."):
            found = getattr(found, name)
        return found

    def hash(self) -> str:
        """Ten hex digits that name these settings (where they are stored does not matter)."""
        values = self.model_dump(mode="json", exclude={"run": True, "data": {"dir"}})
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]


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

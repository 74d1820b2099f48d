"""[train]: optimization, validation, checkpoints and devices."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

from pydantic import Field, field_validator

from kutta.config.section import Section

Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


class TrainConfig(Section):
    """Optimization, validation, checkpoints and devices."""

    max_steps: int = Field(default=50_000, ge=1, description="total number of updates")
    batch_tokens: int = Field(
        default=4096, ge=8, description="maximum size of a batch: rows x longest side"
    )
    accumulate: int = Field(default=1, ge=1, description="batches per update")
    pieces: int = Field(
        default=0,
        ge=0,
        description="micro-batches per batch; 0 for 1 on a GPU, and on a CPU for as many as keep "
        "the states of a micro-batch in the cache",
    )
    lr: float = Field(default=0.002, gt=0.0, description="peak learning rate")
    warmup: int = Field(default=4000, ge=1, description="steps of linear warm-up")
    warmup_from: float = Field(
        default=1e-7, ge=0.0, description="learning rate before the first step"
    )
    adam_betas: tuple[Decay, Decay] = Field(default=(0.9, 0.997), description="Adam's decay rates")
    adam_eps: float = Field(default=1e-8, gt=0.0, description="Adam's epsilon")
    clip_norm: float = Field(
        default=0.0, ge=0.0, description="maximum gradient norm; 0 for no clipping"
    )
    label_smoothing: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="probability mass spread over all tokens"
    )
    precision: Literal["fp32", "tf32", "bf16", "fp16", "mixed"] = Field(
        default="fp32",
        description="precision of matrix products; mixed is resolved for the device when the run "
        "starts: bf16 where supported, else fp16 on a GPU and fp32 on a CPU",
    )
    recompute: bool = Field(
        default=False,
        description="recompute blocks in the backward pass instead of storing their stages",
    )
    compile: bool = Field(
        default=False, description="compile the layers; batches are padded to a few shapes"
    )
    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:1, ...")
    workers: int = Field(
        default=0,
        ge=0,
        description="number of processes; 0 for one per GPU (or per core, to shard or compile), "
        "reduced to a divisor of accumulate x pieces",
    )
    shard: bool = Field(
        default=False, description="shard parameters and optimizer state over processes (FSDP)"
    )
    threads: int = Field(
        default=0,
        ge=0,
        description="CPU threads per process, for all lanes; 0 for its share of the cores",
    )
    lanes: int = Field(
        default=0,
        ge=0,
        description="micro-batches that one process on a CPU computes in parallel, each with its "
        "share of the threads; 0 for as many as keep all threads busy",
    )
    log_every: int = Field(default=50, ge=1, description="steps between log records")
    save_every: int = Field(default=500, ge=1, description="steps between checkpoints")
    valid_every: int = Field(
        default=0, ge=0, description="steps between validations; 0 for save_every"
    )
    valid_bleu: bool = Field(default=True, description="translate the validation set and score it")
    patience: int = Field(
        default=0, ge=0, description="stop after this many validations without a new best; 0: never"
    )
    best: Literal["loss", "bleu"] = Field(
        default="loss", description="validation metric that selects the best checkpoint"
    )
    final_model: Literal["validated", "average", "last", "best"] = Field(
        default="validated",
        description="what is written to model.safetensors: the average of the last decode.average "
        "checkpoints, the last one, the best by validation, or (validated) whichever of these and "
        "of other averages does best on the validation set",
    )
    keep_last: int = Field(default=10, ge=1, description="number of checkpoints to keep")
    max_bad_steps: int = Field(
        default=20, ge=1, description="consecutive non-finite steps before training is aborted"
    )
    tensorboard: bool = Field(default=True, description="write TensorBoard events to the run")
    seed: int = Field(default=1, ge=0, lt=1 << 63, description="random seed")
    grow_from: str = Field(
        default="",
        description="initialise from this run, its layers copied up to the new depth",
    )

    @field_validator("adam_betas", mode="before")
    @classmethod
    def _pair(cls, value: Any) -> Any:
        pair = tuple(cast(list[Any], value)) if isinstance(value, list | tuple) else ()
        if len(pair) != 2:
            raise ValueError(f"{value!r} is not a pair of numbers; write e.g. [0.9, 0.98]")
        return pair

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of an update."""
        return self.accumulate * max(1, self.pieces)

    @property
    def micro_tokens(self) -> int:
        """The maximum size of a micro-batch: rows x longest side."""
        return self.batch_tokens // max(1, self.pieces)

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield self.best == "bleu" and not self.valid_bleu, "best = 'bleu' needs valid_bleu = true"
        yield (
            self.lanes > 1 and (self.compile or self.workers > 1),
            f"lanes = {self.lanes} needs a single process without compilation; set lanes = 0",
        )
        count, name = max((self.lanes, "lanes"), (self.workers, "workers"))
        yield (
            self.pieces > 0 and count > self.micro_batches,
            f"{name} = {count} is more than accumulate x pieces = {self.micro_batches} "
            f"micro-batches; set {name} = 0 or raise pieces",
        )

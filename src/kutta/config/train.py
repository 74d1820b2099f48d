"""[train]: how the parameters are found."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

from pydantic import Field, field_validator

from kutta.config.section import Section

Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


class TrainConfig(Section):
    """How the parameters are found."""

    max_steps: int = Field(default=50_000, ge=1, description="updates in all")
    batch_tokens: int = Field(
        default=4096, ge=8, description="rows x longest side of a batch, at most"
    )
    accumulate: int = Field(default=1, ge=1, description="batches added up for one update")
    pieces: int = Field(
        default=0,
        ge=0,
        description="equal parts of a batch, each filled and computed on its own; 0: on a CPU as "
        "many as make its states fit a cache, else 1",
    )
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
    precision: Literal["fp32", "tf32", "bf16", "fp16", "mixed"] = Field(
        default="fp32",
        description="arithmetic of the matrix products; mixed: 16 bits where the device has them "
        "(bf16, else fp16 on a GPU and fp32 on a CPU), decided when the run is begun",
    )
    recompute: bool = Field(
        default=False,
        description="compute blocks again in the backward pass instead of keeping their stages",
    )
    compile: bool = Field(
        default=False, description="compile the layers; batches are padded to a few lengths"
    )
    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:1, ...")
    workers: int = Field(
        default=0,
        ge=0,
        description="processes that share each update; 0: one for each GPU (or core, to shard or "
        "compile), as far as they divide accumulate x pieces",
    )
    shard: bool = Field(
        default=False, description="split parameters and moments over the processes (FSDP)"
    )
    threads: int = Field(
        default=0,
        ge=0,
        description="CPU threads of a process, all lanes; 0: its share of the cores",
    )
    lanes: int = Field(
        default=0,
        ge=0,
        description="pieces of an update that one process on a CPU computes side by side, each "
        "with its share of the threads; 0: as many as have work for all threads",
    )
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
    final_model: Literal["validated", "average", "last", "best"] = Field(
        default="validated",
        description="what model.safetensors is in the end: the average of the last decode.average "
        "checkpoints, the last one, the best by validation, or whichever of these (and averages of "
        "other numbers) does best on the validation set",
    )
    keep_last: int = Field(default=10, ge=1, description="checkpoints kept")
    max_bad_steps: int = Field(
        default=20, ge=1, description="steps with a non-finite loss before giving up"
    )
    tensorboard: bool = Field(default=True, description="write TensorBoard events to the run")
    seed: int = Field(default=1, ge=0, lt=1 << 63, description="everything random follows from it")
    grow_from: str = Field(
        default="",
        description="begin with the weights of this run, its layers copied to this depth",
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
        """How many micro-batches an update consists of: all pieces of all its batches."""
        return self.accumulate * max(1, self.pieces)

    @property
    def micro_tokens(self) -> int:
        """Rows x longest side of a micro-batch, at most."""
        return self.batch_tokens // max(1, self.pieces)

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield self.best == "bleu" and not self.valid_bleu, "best = 'bleu' needs valid_bleu = true"
        yield (
            self.lanes > 1 and (self.compile or self.workers > 1),
            f"lanes = {self.lanes} are for one process that does not compile; set lanes = 0",
        )
        sharers, name = max((self.lanes, "lanes"), (self.workers, "workers"))
        yield (
            self.pieces > 0 and sharers > self.micro_batches,
            f"{name} = {sharers} cannot share accumulate x pieces = {self.micro_batches}; set "
            f"{name} = 0, or pieces to more",
        )

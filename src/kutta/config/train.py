"""[train]: optimization, validation, checkpoints and devices."""

from collections.abc import Iterator
from typing import Any, Literal, cast

from pydantic import field_validator

from kutta.config.section import Natural, Positive, Rate, Section, setting
from kutta.limits import BATCH_TOKENS, PROCESSES, SEED, THREADS


class TrainConfig(Section):
    """Optimization, validation, checkpoints and devices."""

    max_steps: Positive = setting(50_000, "total number of updates")
    batch_tokens: int = setting(
        4096, "maximum size of a batch: rows x longest side", ge=8, le=BATCH_TOKENS
    )
    accumulate: Positive = setting(1, "batches per update")
    pieces: Natural = setting(
        0,
        "micro-batches per batch; 0 for 1 on a GPU, and on a CPU for as many as keep the states "
        "of a micro-batch in the cache",
    )
    lr: float = setting(0.002, "peak learning rate", gt=0.0)
    warmup: Positive = setting(4000, "steps of linear warm-up")
    warmup_from: float = setting(1e-7, "learning rate before the first step", ge=0.0)
    adam_betas: tuple[Rate, Rate] = setting((0.9, 0.997), "Adam's decay rates")
    adam_eps: float = setting(1e-8, "Adam's epsilon", gt=0.0)
    clip_norm: float = setting(0.0, "maximum gradient norm; 0 for no clipping", ge=0.0)
    label_smoothing: Rate = setting(0.1, "probability mass spread over all tokens")
    precision: Literal["fp32", "tf32", "bf16", "fp16", "mixed"] = setting(
        "fp32",
        "precision of matrix products; mixed is resolved for the device when the run starts: bf16 "
        "where supported, else fp16 on a GPU and fp32 on a CPU",
    )
    recompute: bool = setting(
        False, "recompute blocks in the backward pass instead of storing their stages"
    )
    compile: bool = setting(False, "compile the layers; batches are padded to a few shapes")
    device: str = setting("auto", "auto, cpu, cuda, cuda:1, ...")
    workers: int = setting(
        0,
        "number of processes; 0 for one per GPU (or per core, to shard or compile), reduced to a "
        "divisor of accumulate x pieces",
        ge=0,
        le=PROCESSES,
    )
    shard: bool = setting(False, "shard parameters and optimizer state over processes (FSDP)")
    threads: int = setting(
        0, "CPU threads per process, for all lanes; 0 for its share of the cores", ge=0, le=THREADS
    )
    lanes: int = setting(
        0,
        "micro-batches that one process on a CPU computes in parallel, each with its share of the "
        "threads; 0 for as many as keep all threads busy",
        ge=0,
        le=THREADS,
    )
    log_every: Positive = setting(50, "steps between log records")
    save_every: Positive = setting(500, "steps between checkpoints")
    valid_every: Natural = setting(0, "steps between validations; 0 for save_every")
    valid_bleu: bool = setting(True, "translate the validation set and score it")
    patience: Natural = setting(0, "stop after this many validations without a new best; 0: never")
    best: Literal["loss", "bleu"] = setting(
        "loss", "validation metric that selects the best checkpoint"
    )
    final_model: Literal["validated", "average", "last", "best"] = setting(
        "validated",
        "what is written to model.safetensors: the average of the last decode.average "
        "checkpoints, the last one, the best by validation, or (validated) whichever of these and "
        "of other averages does best on the validation set",
    )
    keep_last: Positive = setting(10, "number of checkpoints to keep")
    max_bad_steps: Positive = setting(20, "consecutive non-finite steps before training is aborted")
    tensorboard: bool = setting(True, "write TensorBoard events to the run")
    seed: int = setting(1, "random seed", ge=0, le=SEED)
    grow_from: str = setting("", "initialise from this run, its layers copied up to the new depth")

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

    def mistakes(self) -> Iterator[str]:
        if self.best == "bleu" and not self.valid_bleu:
            yield "best = 'bleu' needs valid_bleu = true"
        if self.lanes > 1 and (self.compile or self.workers > 1):
            yield f"lanes = {self.lanes} needs a single process without compilation; set lanes = 0"
        count, name = max((self.lanes, "lanes"), (self.workers, "workers"))
        if self.pieces > 0 and count > self.micro_batches:
            yield (
                f"{name} = {count} is more than accumulate x pieces = {self.micro_batches} "
                f"micro-batches; set {name} = 0 or raise pieces"
            )

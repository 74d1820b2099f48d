"""The shallow run that a deeper one is initialised from (train.grow_from)."""

from pathlib import Path

from kutta.config import WEIGHTS, Config
from kutta.errors import InputError
from kutta.runs.run import Run

# A grown model inherits the vocabulary and widths of the shallow one: these must be equal.
_KEPT = (
    *("data.source", "data.target", "data.tokenizer", "data.vocab_size", "data.vocabulary"),
    *("data.shared_vocab", "model.d_model", "model.ffn", "model.heads"),
    *("model.relative_positions", "model.tie_embeddings", "model.stage_parameters"),
)


def check_shallow(config: Config) -> None:
    """Reject a train.grow_from that does not work, before anything is done or removed."""
    if not config.train.grow_from:
        return
    shallow = Path(config.train.grow_from)
    if shallow.resolve() == Path(config.run).resolve():
        raise InputError("train.grow_from is the run itself; name a shallower, finished run.")
    if not Run.is_at(shallow) or not (run := Run.load(shallow)).final_weights.is_file():
        raise InputError(
            f"train.grow_from = {str(shallow)!r} is not a finished run (with {WEIGHTS}); "
            "train the shallow model first, or remove the setting."
        )
    for key in _KEPT:
        there, here = run.config.value(key), config.value(key)
        if there != here:
            raise InputError(
                f"Cannot grow from {shallow}: {key} is {there!r} there and {here!r} here; a grown "
                "model may differ in depth and method only."
            )
    for name in ("encoder", "decoder"):
        few, many = (c.value(f"model.{name}_layers") for c in (run.config, config))
        if few and many % few:
            raise InputError(
                f"The {name} cannot grow from {few} to {many} layers, which is not a multiple; "
                f"change model.{name}_layers or remove train.grow_from."
            )

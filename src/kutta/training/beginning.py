"""Before the first update: where the parameters begin, other than at their initial draw."""

from pathlib import Path

from kutta.config import Config
from kutta.data.batches import BatchStream
from kutta.data.tokenizer import Tokenizers
from kutta.errors import InputError
from kutta.model import TextModel
from kutta.model.grow import grow
from kutta.model.initialise import profile_admin
from kutta.model.weights import fill, own_tensors, read_tensors
from kutta.translate.loading import WEIGHTS, vocabulary_of

# A grown model takes over the shallow one's vocabulary and widths: these must be the same in both.
_KEPT = (
    *("data.source", "data.target", "data.tokenizer", "data.vocab_size", "data.vocabulary"),
    *("data.shared_vocab", "model.d_model", "model.ffn", "model.heads"),
    *("model.relative_positions", "model.stage_parameters"),
)


def begin(model: TextModel, config: Config, stream: BatchStream) -> None:
    """Take over the weights of a shallower run (train.grow_from), or profile ADMIN's residuals.

    Both follow from settings, files and the first batch alone, so beginning again is the same.
    """
    if config.train.grow_from:
        _grow(model, config)
    elif config.model.init == "admin":
        batch = stream.take(0).to(model.output_weight.device)
        profile_admin(model, batch.source, batch.target_in)


def check_shallow(config: Config) -> None:
    """Refuse a train.grow_from that cannot be grown from, before anything is done or removed."""
    if not config.train.grow_from:
        return
    shallow = Path(config.train.grow_from)
    if shallow.resolve() == Path(config.run).resolve():
        raise InputError("train.grow_from is this run itself; name a shallower, finished one.")
    if not (shallow / WEIGHTS).is_file() or not (shallow / "config.json").is_file():
        raise InputError(
            f"train.grow_from = {str(shallow)!r} is not a finished run (with {WEIGHTS}); "
            "train the shallow model first, or leave the setting out."
        )
    before = Config.load(shallow / "config.json")
    for key in _KEPT:
        there, here = before.value(key), config.value(key)
        if there != here:
            raise InputError(
                f"The model of {shallow} cannot be grown from, because {key} is {there!r} there "
                f"and {here!r} here; a grown model may differ in depth and method only."
            )
    for name in ("encoder", "decoder"):
        few, many = (c.value(f"model.{name}_layers") for c in (before, config))
        if few and many % few:
            raise InputError(
                f"The {name} cannot grow from {few} to {many} layers, which is no multiple; change "
                f"model.{name}_layers or leave train.grow_from out."
            )


def shallow_tokenizers(config: Config) -> Tokenizers | None:
    """The vocabulary to keep: that of the run to grow from; None where there is none."""
    return Tokenizers.load(Path(config.train.grow_from)) if config.train.grow_from else None


def _grow(model: TextModel, config: Config) -> None:
    run, shallow = Path(config.run), Path(config.train.grow_from)
    if vocabulary_of(run) != vocabulary_of(shallow):
        raise InputError(
            f"The text in {run} was prepared with another vocabulary than that of {shallow}; make "
            "it anew with `kutta prepare CONFIG --overwrite`."
        )
    before = Config.load(shallow / "config.json").model
    depths = {"encoder": before.encoder_layers, "decoder": before.decoder_layers}
    grown = grow(read_tensors(shallow / WEIGHTS), depths, model)
    if missing := own_tensors(model).keys() - grown.keys():
        raise InputError(
            f"The model of {shallow} has nothing to grow {min(missing)} from; a grown model may "
            "have another depth and method, but no parameters of another kind."
        )
    fill(model, grown, f"the model grown from {shallow}")

"""Before the first update: where the parameters begin, other than at their initial draw."""

from pathlib import Path

from kutta.config import Config
from kutta.data.batches import BatchStream
from kutta.data.tokenizer import Tokenizers
from kutta.errors import InputError
from kutta.model.grow import grow
from kutta.model.initialise import profile_admin
from kutta.model.weights import fill, read_tensors
from kutta.training.loop import Trainer

WEIGHTS = "model.safetensors"


def begin(trainer: Trainer, config: Config, stream: BatchStream) -> None:
    """Take over the weights of a shallower run (train.grow_from), or profile ADMIN's residuals.

    Both follow from settings, files and the first batch alone, so beginning again is the same.
    """
    if config.train.grow_from:
        shallow = Path(config.train.grow_from)
        settings = _settings_of(shallow).model
        depths = {"encoder": settings.encoder_layers, "decoder": settings.decoder_layers}
        grown = grow(read_tensors(shallow / WEIGHTS), depths, trainer.model)
        fill(trainer.model, grown, f"{shallow / WEIGHTS}, grown,")
    elif config.model.init == "admin":
        batch = stream.take(0).to(trainer.device)
        profile_admin(trainer.model, batch.source, batch.target_in)


def shallow_tokenizers(config: Config) -> Tokenizers | None:
    """The vocabulary to keep: that of the run to grow from; None where there is none."""
    if not config.train.grow_from:
        return None
    shallow = Path(config.train.grow_from)
    _settings_of(shallow)
    return Tokenizers.load(shallow)


def _settings_of(shallow: Path) -> Config:
    if not (shallow / WEIGHTS).is_file() or not (shallow / "config.json").is_file():
        raise InputError(
            f"train.grow_from = {str(shallow)!r} is not a finished run (with {WEIGHTS}); "
            "train the shallow model first, or leave the setting out."
        )
    return Config.load(shallow / "config.json")

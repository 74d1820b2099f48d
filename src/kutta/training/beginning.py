"""Before the first update: initial parameters other than the random ones."""

from kutta.data.batches import BatchStream
from kutta.errors import InputError
from kutta.model import TextModel
from kutta.model.grow import grow
from kutta.model.initialise import profile_admin
from kutta.model.weights import fill, own_tensors, read_tensors
from kutta.runs import Run


def begin(model: TextModel, run: Run, stream: BatchStream) -> None:
    """Copy the weights of a shallower run (train.grow_from), or profile ADMIN's residuals.

    Both depend only on settings, files and the first batch, so a restart gives the same result.
    """
    if not run.config.train.grow_from:
        if run.config.model.init == "admin":
            batch = stream.take(0).to(model.output_weight.device)
            profile_admin(model, batch.source, batch.target_in)
        return
    shallow = Run.load(run.config.train.grow_from)
    if run.vocabulary() != shallow.vocabulary():
        raise InputError(
            f"The text in {run.path} was prepared with another vocabulary than {shallow.path}; "
            "prepare it again with `kutta prepare CONFIG --overwrite`."
        )
    before = shallow.config.model
    depths = {"encoder": before.encoder_layers, "decoder": before.decoder_layers}
    grown = grow(read_tensors(shallow.final_weights), depths, model)
    if missing := own_tensors(model).keys() - grown.keys():
        raise InputError(
            f"The model of {shallow.path} has no parameters to grow {min(missing)} from; a grown "
            "model may have another depth and method, but no other kinds of parameters."
        )
    fill(model, grown, f"the model grown from {shallow.path}")

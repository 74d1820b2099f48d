"""Writing the directory of an exported model."""

from pathlib import Path

from kutta import __version__
from kutta.config import CONFIG
from kutta.errors import InputError
from kutta.export.graphs import decoder_graph, encoder_graph, output_size
from kutta.export.shared import read_stored, share_weights
from kutta.files import atomic_path, write_json, write_text
from kutta.integrity import write_manifest
from kutta.model import TextModel, TranslationModel
from kutta.model.weights import own_tensors, write_int8
from kutta.runs import Run
from kutta.runtime.directory import DECODER, ENCODER, EXPORT, FORMAT, WEIGHTS, Facts
from kutta.translate.pytorch import sizes_of

LARGEST = 2**31 - 1  # bytes of an ONNX file, which is one protocol buffer


def export_run(run: Run, folder: Path, precision: str = "fp32") -> None:
    """Write the model of a run or a checkpoint to a new folder, all or nothing."""
    if folder.exists():
        raise InputError(f"{folder} already exists; give another folder, or remove it.")
    model = run.load_model()
    with atomic_path(folder) as temporary:
        temporary.mkdir(parents=True)
        write_model(model, temporary, precision, run.signature, run.origin)
        write_text(temporary / CONFIG, run.config.to_json())
        for name, content in run.vocabulary().items():
            (temporary / name).write_bytes(content)
        write_manifest(temporary)


def write_model(
    model: TextModel, folder: Path, precision: str, signature: str, origin: str = ""
) -> None:
    """Write the graphs of a model and what decoding has to know of it."""
    graphs = {DECODER: decoder_graph(model, precision)}
    if isinstance(model, TranslationModel):
        graphs[ENCODER] = encoder_graph(model, precision)
    if precision == "int8":
        write_int8(own_tensors(model), folder / WEIGHTS, origin)
        stored = read_stored(folder / WEIGHTS)
        graphs = {name: share_weights(graph, stored) for name, graph in graphs.items()}
    for name, graph in graphs.items():
        if graph.ByteSize() > LARGEST:
            raise InputError(
                "The model is too large for an ONNX file of 2 GB; export it with --precision int8."
            )
        (folder / name).write_bytes(graph.SerializeToString())
    sizes, outputs = sizes_of(model), output_size(model)
    facts = Facts(
        format=FORMAT,
        version=__version__,
        precision=precision,
        signature=signature,
        vocabulary=len(model.output_weight),
        outputs=outputs,
        **vars(sizes),
    )
    write_json(folder / EXPORT, facts.to_dict())

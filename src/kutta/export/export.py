"""Writing the directory of an exported model."""

from pathlib import Path
from typing import Any

import numpy as np

from kutta import __version__
from kutta.config import CONFIG, WEIGHTS
from kutta.errors import InputError
from kutta.export.graphs import PRODUCTS, decoder_graph, encoder_graph
from kutta.export.output import output_size
from kutta.export.program import programs_of
from kutta.export.shared import Known, read_stored, share_weights
from kutta.export.shortlist import Integers, learn
from kutta.files import atomic_path, write_json, write_text
from kutta.integrity import write_manifest
from kutta.model import TextModel, TranslationModel
from kutta.model.weights import own_tensors, write_int8, write_tensors
from kutta.runs import Run
from kutta.runtime.directory import DECODER, ENCODER, EXPORT, FORMAT, Facts
from kutta.runtime.program import PROGRAM
from kutta.runtime.shortlist import SHORTLIST
from kutta.translate.pytorch import sizes_of

Lists = tuple[Integers, Integers]


def export_run(run: Run, folder: Path, precision: str = "fp32", shortlist: bool = False) -> None:
    """Write the model of a run or a checkpoint to a new folder, all or nothing."""
    if folder.exists():
        raise InputError(f"{folder} already exists; give another folder, or remove it.")
    model, lists = run.load_model(), _lists(run) if shortlist else None
    with atomic_path(folder) as temporary:
        temporary.mkdir(parents=True)
        write_model(model, temporary, precision, run.signature, run.origin, lists)
        write_text(temporary / CONFIG, run.config.to_json())
        for name, content in run.vocabulary().items():
            (temporary / name).write_bytes(content)
        write_manifest(temporary)


def _lists(run: Run) -> Lists:
    """The shortlist that the training corpus of a run gives."""
    if run.config.language_model:
        raise InputError("A language model has no source, so it has no shortlist.")
    tokenizers = run.tokenizers
    sizes = len(tokenizers.source), len(tokenizers.target)
    return learn(run.train_store(), *sizes, joint=tokenizers.source is tokenizers.target)


def write_model(
    model: TextModel,
    folder: Path,
    precision: str,
    signature: str,
    origin: str = "",
    lists: Lists | None = None,
) -> None:
    """Write the graphs of a model and what decoding has to know of it.

    `origin` says what the weights are, and `lists` are the candidates and the frequent tokens of a
    `Shortlist`.
    """
    write = write_int8 if precision == "int8" else write_tensors
    write(own_tensors(model), folder / WEIGHTS, origin)
    if lists:
        candidates, frequent = (ids.astype(np.int32) for ids in lists)
        columns: dict[str, Any] = PRODUCTS[precision]().stored(model.output_weight)
        with open(folder / SHORTLIST, "wb") as file:
            np.savez(file, candidates=candidates, frequent=frequent, **columns)
    write_graphs(model, folder, precision, lists is not None)
    vocabulary = len(model.output_weight)
    facts = Facts(
        format=FORMAT,
        version=__version__,
        precision=precision,
        signature=signature,
        vocabulary=vocabulary,
        outputs=output_size(vocabulary),
        shortlist=lists is not None,
        **vars(sizes_of(model)),
    )
    write_json(folder / EXPORT, facts.to_dict())


def write_graphs(model: TextModel, folder: Path, precision: str, shortlist: bool = False) -> None:
    """Write the graphs and programs of a model, which read the weights that the folder has."""
    graphs = {DECODER: decoder_graph(model, precision, shortlist)}
    if isinstance(model, TranslationModel):
        graphs[ENCODER] = encoder_graph(model, precision)
    known = Known(read_stored(folder / WEIGHTS))
    for name, graph in graphs.items():
        graph = share_weights(graph, known)
        (folder / name).write_bytes(graph.SerializeToString())
    if programs := programs_of(model, precision):
        write_json(folder / PROGRAM, programs)

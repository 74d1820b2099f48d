"""The directory of an exported model.

export.json  config.json  tokenizer.model | vocab.txt  encoder.onnx  decoder.onnx
model.safetensors (whose matrices both graphs read)  [shortlist.npz]  checksums.json

A language model has no encoder.onnx. torch can read the folder too, as a run. `kutta export` writes
it, and nothing in it is changed afterwards.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from kutta.box.hub import find_model, is_hub_name
from kutta.config import CONFIG, WEIGHTS, Config
from kutta.contained import check_contained
from kutta.data.tokenizer import Tokenizers, saved_vocabulary
from kutta.errors import InputError
from kutta.integrity import MANIFEST, read_manifest, verify
from kutta.limits import LAYERS, POSITIONS, STAGES, TEXT, VOCABULARY, WIDTH
from kutta.parsing import read_table
from kutta.runtime.asked import OPERATORS, asked_by
from kutta.runtime.shortlist import SHORTLIST, Shortlist

EXPORT, ENCODER, DECODER = "export.json", "encoder.onnx", "decoder.onnx"
FORMAT = 4  # raised when versions of Kutta cannot read the directories of each other
# The largest of the numbers in export.json.
_MOST = {
    "format": FORMAT,
    "caches": LAYERS * STAGES,
    "memories": LAYERS * STAGES,
    "heads": WIDTH,
    "width": WIDTH,
    "clip": POSITIONS,
    "vocabulary": VOCABULARY,
    "outputs": 2 * VOCABULARY,
}


@dataclass(frozen=True)
class Facts:
    """What export.json says: the precision of the weights, and the sizes that decoding needs.

    `vocabulary` is the number of target tokens, `outputs` that of the output layer, which may have
    some more that are impossible. See `Sizes` in kutta.translate.cached for the others.
    """

    format: int
    version: str
    precision: str
    signature: str
    vocabulary: int
    outputs: int
    caches: int
    memories: int
    heads: int
    width: int
    clip: int
    shortlist: bool

    @property
    def cache_type(self) -> type[np.floating[Any]]:
        """In which keys and values are kept: they are half as large beside weights in 8 bits."""
        return np.float16 if self.precision == "int8" else np.float32

    @classmethod
    def read(cls, path: Path) -> Self:
        values = read_table(path, "copy the exported folder again")
        number = values.get("format")
        if type(number) is int and number < FORMAT:
            raise InputError(
                f"{path.parent} was exported in format {number}, which this version of Kutta no "
                "longer reads; export the run again."
            )
        if type(number) is int and number > FORMAT:
            raise InputError(
                f"{path.parent} was exported in format {number}, which this version of Kutta "
                "cannot read; install a newer one."
            )
        if wrong := values.keys() ^ cls.__annotations__.keys():
            raise InputError(
                f"{path} is damaged: it lacks {min(wrong)}, or has it in vain; export the run "
                "again."
            )
        for name, kind in cls.__annotations__.items():
            value, most = values[name], _MOST.get(name, TEXT)
            size: Any = len(value) if isinstance(value, str) else value
            if type(value) is not kind or not 0 <= size <= most:
                raise InputError(f"{path} is damaged: {name} is not valid; export the run again.")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Exported:
    """An exported model whose files have been checked."""

    path: Path
    facts: Facts
    config: Config

    @property
    def is_language_model(self) -> bool:
        return self.facts.memories == 0

    @property
    def graphs(self) -> list[Path]:
        """The encoder, if there is one, and the decoder."""
        names = [DECODER] if self.is_language_model else [ENCODER, DECODER]
        return [self.path / name for name in names]

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS

    @cached_property
    def shortlist(self) -> Shortlist | None:
        """Which tokens sentences list, if the model has a shortlist."""
        if not self.facts.shortlist:
            return None
        sizes = len(self.tokenizers.source), self.facts.vocabulary
        return Shortlist.read(self.path / SHORTLIST, *sizes)

    @cached_property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.path)

    def vocabulary(self) -> dict[str, bytes]:
        """The contents of the tokenizer files, by name."""
        return saved_vocabulary(self.path)


def is_exported(folder: Path) -> bool:
    """Whether a folder is that of an exported model."""
    try:
        return (folder / EXPORT).is_file()
    except OSError:  # the name is too long, for instance
        return False


def find_exported(given: str | Path) -> Path | None:
    """The folder of an exported model: at this path, in the box or from the hub.

    None where it is something else, such as a run, of which `Run.load` says what is wrong.
    """
    try:
        folder = find_model(given)
    except InputError:
        if is_hub_name(given):
            raise
        return None
    return folder if is_exported(folder) else None


def open_export(folder: Path) -> Exported:
    """Check the files of an exported model and read its settings."""
    check_contained(folder)
    facts = Facts.read(folder / EXPORT)
    remedy = "copy the exported folder again, or export the run again"
    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError(f"{folder / MANIFEST} is missing; {remedy}.")
    verify(folder, remedy=remedy)
    found = Exported(folder, facts, Config.load(folder / CONFIG))
    if facts.shortlist and SHORTLIST not in manifest.files:
        raise InputError(f"{folder / SHORTLIST} is not in {MANIFEST}; {remedy}.")
    for file in (folder / WEIGHTS, *found.graphs):
        if file.name not in manifest.files:
            raise InputError(f"{file} is not in {MANIFEST}; {remedy}.")
    for graph in found.graphs:
        asked = asked_by(graph)
        if others := asked.files - {WEIGHTS}:  # which both graphs may read
            raise InputError(
                f"{graph} reads its weights from another file ({min(others)!r}), which Kutta does "
                "not allow; export the run again."
            )
        if others := asked.operators - OPERATORS:
            raise InputError(
                f"{graph} has the operator {min(others)!r}, which no export of Kutta has; export "
                "the run again."
            )
    if len(found.tokenizers.target) != facts.vocabulary:
        raise InputError(
            f"{folder} has another vocabulary than its {EXPORT} says; export the run again."
        )
    return found

"""The directory of an exported model.

export.json  config.json  tokenizer.model | vocab.txt  encoder.onnx  decoder.onnx
[shortlist.npz]  checksums.json

A language model has no encoder.onnx. `kutta export` writes the folder, and nothing in it is changed
afterwards.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from kutta.config import CONFIG, Config
from kutta.data.tokenizer import Tokenizers
from kutta.errors import InputError
from kutta.integrity import MANIFEST, read_manifest, verify
from kutta.parsing import read_json
from kutta.runtime.external import external_data
from kutta.runtime.shortlist import SHORTLIST, Shortlist

EXPORT, ENCODER, DECODER = "export.json", "encoder.onnx", "decoder.onnx"
FORMAT = 2  # raised when versions of Kutta cannot read the directories of each other


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

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            values = read_json(path)
            number: Any = values["format"]
            if isinstance(number, int) and number > FORMAT:
                raise InputError(
                    f"{path.parent} was exported by Kutta {values.get('version')} in format "
                    f"{number}, which this version cannot read; install a newer Kutta."
                )
            if isinstance(number, int) and number < FORMAT:
                raise InputError(
                    f"{path.parent} was exported by Kutta {values.get('version')} in format "
                    f"{number}, which this version no longer reads; export the run again."
                )
            facts = cls(**values)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{path} cannot be read ({error}); copy the exported folder again."
            ) from None
        for name, kind in cls.__annotations__.items():
            if not isinstance(getattr(facts, name), kind):
                raise InputError(f"{path} is damaged: {name} is not valid; export the run again.")
        return facts

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
        files = [*self.path.glob("tokenizer*.model"), *self.path.glob("vocab*.txt")]
        return {file.name: file.read_bytes() for file in files}


def is_exported(folder: Path) -> bool:
    """Whether a folder is that of an exported model."""
    try:
        return (folder / EXPORT).is_file()
    except OSError:  # the name is too long, for instance
        return False


def open_export(folder: Path) -> Exported:
    """Check the files of an exported model and read its settings."""
    facts = Facts.read(folder / EXPORT)
    remedy = "copy the exported folder again, or export the run again"
    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError(f"{folder / MANIFEST} is missing; {remedy}.")
    verify(folder, remedy=remedy)
    found = Exported(folder, facts, Config.load(folder / CONFIG))
    if facts.shortlist and SHORTLIST not in manifest.files:
        raise InputError(f"{folder / SHORTLIST} is not in {MANIFEST}; {remedy}.")
    for graph in found.graphs:
        if graph.name not in manifest.files:
            raise InputError(f"{graph} is not in {MANIFEST}; {remedy}.")
        if where := external_data(graph):
            raise InputError(
                f"{graph} reads its weights from another file ({where!r}), which Kutta does not "
                "allow; export the run again."
            )
    return found

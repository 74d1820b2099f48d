"""Every reader of files, as a function of bytes: it reads them, or says in one sentence why not."""

import contextlib
import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import zstandard

from kutta.config import Config, DataConfig
from kutta.data.corpus import read_lines, read_pairs, read_stream
from kutta.data.prepare import read_dictionary
from kutta.data.store import Store
from kutta.data.tokenizer import BPE, Pretokenized
from kutta.documents.formats import Job, translate_file
from kutta.errors import InputError
from kutta.integrity import MANIFEST, read_manifest
from kutta.model.weights import read_shapes, read_tensors
from kutta.parsing import DocumentError, parse_json, parse_toml, read_records
from kutta.runtime.asked import asked_by
from kutta.runtime.directory import EXPORT, Facts
from kutta.runtime.kernels import obstacle
from kutta.runtime.program import Shape, read_programs
from kutta.training.state import State

ALLOWED = (InputError, DocumentError)  # and nothing else
TMX = b"""<?xml version="1.0"?><tmx version="1.4"><header srclang="xx"/><body>
<tu><tuv xml:lang="xx"><seg>ba <hi>be</hi></seg></tuv><tuv xml:lang="yy"><seg>BE BA</seg></tuv></tu>
</body></tmx>"""
DOCUMENTS = {
    "html": b"<p>ba <b>be</b> &amp; bi</p><ul><li>do</li></ul><script>x</script>",
    "srt": b"1\n00:00:01,000 --> 00:00:02,000\nba be\n\n2\n00:00:03,000 --> 00:00:04,000\ndo\n",
    "po": (
        b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "ba"\nmsgstr ""\n'
    ),
}


@dataclass(frozen=True)
class Reader:
    """How bytes are read, from a file in a folder; `seeds` are bytes that it can read."""

    read: Callable[[bytes, Path], object]
    seeds: tuple[bytes, ...]


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def from_bytes(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return from_bytes


def _pairs(path: Path) -> object:
    data = DataConfig(dir=str(path.parent), source="xx", target="yy")
    return list(read_pairs(data, path.name))


def _bpe(path: Path) -> object:
    tokenizer = BPE.load(path)
    return tokenizer.decode(tokenizer.encode("ba \N{LOWER ONE EIGHTH BLOCK}be \u2028 \U0001f600"))


def _store(path: Path) -> object:
    store = Store.open(path)
    return [len(store), store.gather(range(len(store))), store.lengths()]


def _document(path: Path) -> object:
    job = Job(lambda texts: [text.upper() for text in texts], "xx", "yy")
    target = path.with_name(f"out{path.suffix}")
    translate_file(path, target, job)
    return target.read_bytes()


def _programs(exported: Path, path: Path) -> object:
    """Programs for the weights of a model; read where the kernels are compiled."""
    facts = Facts.read(exported / EXPORT)
    shape = Shape.of(facts)
    if obstacle():
        raise DocumentError(obstacle())
    return read_programs(path.parent, exported / "model.safetensors", shape)


def readers(home: Path) -> dict[str, Reader]:
    """All readers; the seeds are files of the runs in `home` (see scenes.py)."""
    run, exported = home / "trained" / "run", home / "exported" / "exported"
    checkpoint = run / "checkpoints" / "step-00000004"
    text = "ba be\r\nbi\t\u2028\n\nÄ\u0301 \U0001f600\n".encode()
    parallel = b"xx\tyy\nba\tBA\nbe bi\tBI BE\n"
    config = (home / "text" / "config.toml").read_bytes()

    def seeds(*paths: Path) -> tuple[bytes, ...]:
        return tuple(path.read_bytes() for path in paths)

    plain = {
        "text": Reader(lambda data, _: list(read_stream(io.BytesIO(data), "input")), (text,)),
        "gz": Reader(_file("a.gz", lambda path: list(read_lines(path))), (gzip.compress(text),)),
        "zst": Reader(
            _file("a.zst", lambda path: list(read_lines(path))), (zstandard.compress(text),)
        ),
        "TSV": Reader(_file("a.tsv", _pairs), (parallel, text)),
        "TMX": Reader(_file("a.tmx", _pairs), (TMX,)),
        "dict.txt": Reader(_file("dict.txt", read_dictionary), (b"ba 3\nbe 2\n",)),
        "vocab.txt": Reader(
            _file("vocab.txt", Pretokenized.load), (b"<pad>\n<unk>\n<s>\n</s>\nba\nbe\n",)
        ),
        "JSON": Reader(
            lambda data, _: parse_json(data.decode("utf-8", "replace")), (b'{"a": [1]}',)
        ),
        "TOML": Reader(lambda data, _: parse_toml(data.decode("utf-8", "replace")), (config,)),
        "config.toml": Reader(_file("c.toml", Config.load), (config,)),
        "config.json": Reader(_file("config.json", Config.load), seeds(run / "config.json")),
        "metrics.jsonl": Reader(
            _file("metrics.jsonl", lambda path: list(read_records(path))),
            seeds(run / "metrics.jsonl"),
        ),
        "checksums.json": Reader(
            _file(MANIFEST, lambda path: read_manifest(path.parent)), seeds(run / MANIFEST)
        ),
        "state.json": Reader(
            lambda data, _: State.parse(data.decode("utf-8", "replace"), 4, 1, 1),
            seeds(checkpoint / "state.json"),
        ),
        "safetensors": Reader(
            _file("a.safetensors", lambda path: (read_shapes(path), read_tensors(path))),
            seeds(run / "model.safetensors"),
        ),
        "tokenizer.model": Reader(_file("t.model", _bpe), seeds(run / "tokenizer.model")),
        "store": Reader(_file("a.arrow", _store), seeds(run / "store" / "valid.arrow")),
        "export.json": Reader(_file("export.json", Facts.read), seeds(exported / "export.json")),
        "program.json": Reader(
            _file("program.json", partial(_programs, exported)), seeds(exported / "program.json")
        ),
        "ONNX": Reader(_file("a.onnx", asked_by), seeds(exported / "encoder.onnx")),
    }
    documents = {
        name: Reader(_file(f"a.{name}", _document), (seed,)) for name, seed in DOCUMENTS.items()
    }
    return plain | documents


def outcome(reader: Reader, data: bytes, folder: Path) -> str:
    """ "read", "refused", or what is wrong."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            reader.read(data, folder)
    except ALLOWED as error:
        told = str(error)
        return "refused" if told and "\n" not in told else f"not one sentence: {told!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "read"

"""Output that the same command continues after it was killed.

Lines go to NAME.part, which becomes NAME when all are there. NAME.part.json says what they are the
translations of, so that lines of another input or model never end up in one file.
"""

import hashlib
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from kutta.config import SearchOptions
from kutta.errors import InputError
from kutta.files import followed, lock, remove, write_json, writing
from kutta.integrity import MANIFEST
from kutta.parsing import read_json


def check_resumable(output: Path | None, document: Path | None, lines: bool, sampled: bool) -> Path:
    """The file of an output that can be resumed; `lines` says that an answer is one line."""
    if output is None:
        raise InputError("--resume continues a file; name it with --output.")
    if document is not None:
        raise InputError(f"--resume is for plain text, but {document} is a document; remove it.")
    if output.suffix in (".gz", ".zst"):
        raise InputError(f"--resume cannot continue a compressed file; do not compress {output}.")
    if not lines:
        raise InputError("--resume needs one line of output for each line; add --json.")
    if sampled:
        raise InputError("--resume cannot continue random samples; remove --sample.")
    if followed(output).exists():
        raise InputError(f"{output} is complete; remove it, or leave out --resume.")
    return followed(output)


def facts_of(
    folders: Sequence[Path], input: Path | None, n_best: int, as_json: bool, search: SearchOptions
) -> dict[str, Any]:
    """What lines of output depend on: the models, the input and the options."""
    return {
        "models": [_digest(folder / MANIFEST) or str(folder.resolve()) for folder in folders],
        "input": "" if input is None else _digest(input),
        "n_best": n_best,
        "json": as_json,
        "search": {name: value for name, value in search.items() if value is not None},
    }


@contextmanager
def resumed_output(path: Path, facts: dict[str, Any]) -> Generator[tuple[TextIO, int]]:
    """The file to append to, and how many lines it has. It gets its name if nothing is raised."""
    part, record = (path.with_name(path.name + end) for end in (".part", ".part.json"))
    with writing(part):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "a+b") as file:
            lock(file.fileno(), f"{part} is being written by another process; wait for its end.")
            if file.tell() and _read(record) != facts:
                raise InputError(
                    f"{part} has lines of another input, model or other options; remove it to "
                    "start again."
                )
            write_json(record, facts)
            done = _complete_lines(file)
            with open(part, "a", encoding="utf-8", newline="\n", buffering=1) as out:
                yield out, done
                out.flush()
                os.fsync(out.fileno())
            part.replace(path)
            remove(record)


def without_first(lines: Iterator[str], count: int) -> Iterator[str]:
    """The lines after those that are done."""
    found = sum(1 for _ in islice(lines, count))
    if found < count:
        raise InputError(
            f"The input has {found:,} lines, but {count:,} are translated; give the same input as "
            "before, or remove the unfinished output."
        )
    return lines


def _read(record: Path) -> object:
    try:
        return read_json(record)
    except (OSError, ValueError):  # missing or damaged: of what the lines are is not known
        return None


def _complete_lines(file: BinaryIO) -> int:
    """Cut off a line that was half-written, and count the others."""
    file.seek(0)
    count = end = 0
    for line in file:
        if line.endswith(b"\n"):
            count, end = count + 1, end + len(line)
    file.truncate(end)
    return count


def _digest(path: Path) -> str:
    """The SHA-256 of a file, or "" if it is not a file, as a pipe is."""
    if not path.is_file():
        return ""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Translation on a Ray cluster: lines in, answers out, in order.

Lines become blocks of a Ray dataset and a block is a task, not an actor, so any node can repeat it:
Ray retries the tasks of a node or process that has died. Only Kutta has to be installed on the
nodes. They get the lines and the exported models from here and send answers back, so they need not
share files.
"""

import logging
import os
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, cast

from kutta import __version__
from kutta.errors import InputError
from kutta.runtime import is_exported
from kutta.translate.translator import Options, Translator

BLOCK = 500  # lines of a task: some seconds of work
WINDOW = 1_000 * BLOCK  # lines that are on the cluster at once, so that memory does not grow

Files = dict[str, bytes]  # the contents of a folder by name


@dataclass(frozen=True)
class Work:
    """What a task is given beside its lines."""

    models: Any  # a Ray reference to the Files of every model
    workers: int  # threads that search, one core each
    n_best: int
    as_json: bool
    options: Options
    version: str = __version__


def check_clustered(folders: Sequence[Path], document: Path | None, sampled: bool) -> None:
    """Reject what a cluster cannot translate."""
    if document is not None:
        raise InputError(f"--ray is for plain text, but {document} is a document; remove it.")
    if sampled:
        raise InputError("--ray cannot sample, as samples depend on numbers of lines; remove one.")
    for folder in folders:
        if not is_exported(folder):
            raise InputError(
                f"{folder} is not an exported model, which --ray needs; run `kutta export {folder} "
                "FOLDER` and give that."
            )


def answers_on_cluster(
    address: str,
    folders: Sequence[Path],
    workers: int,
    n_best: int,
    as_json: bool,
    lines: Iterator[str],
    options: Options,
) -> Iterator[str]:
    """What is written for each line, in order, computed by the nodes of a Ray cluster."""
    on_lines = options.pop("on_lines", None)
    options.pop("chunk", None)
    with _connected(address) as ray:
        models = [{file.name: file.read_bytes() for file in _files(folder)} for folder in folders]
        work = Work(ray.put(models), workers, n_best, as_json, options)
        while window := list(islice(lines, WINDOW)):
            for answers in _answers(ray, window, work):
                if on_lines:
                    on_lines(len(answers))
                yield from answers


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.is_file()]


@contextmanager
def _connected(address: str) -> Generator[Any]:
    """Ray, connected to a cluster; its failures as one sentence."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
    try:
        ray: Any = import_module("ray")
        import_module("ray.data")
    except ModuleNotFoundError as error:
        raise InputError(
            f"--ray needs {error.name}, which is not installed; run `pip install 'kutta[ray]'`."
        ) from error
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (ray.exceptions.RayError, ConnectionError, OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"There is no Ray cluster at {address} ({_reason(error)}); start one with `ray start "
            "--head`, or give its address."
        ) from error
    try:
        yield ray
    except ray.exceptions.RayError as error:
        raise InputError(
            f"The Ray cluster has failed ({_reason(error)}); see its logs, then run this again."
        ) from error
    finally:
        ray.shutdown()


def _answers(ray: Any, lines: Sequence[str], work: Work) -> Iterator[list[str]]:
    """The answers to some lines, block by block in order."""
    import pyarrow as pa

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context: Any = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    blocks: list[Any] = [
        pa.table({"number": range(first, first + len(some)), "text": pa.array(some, pa.string())})
        for first in range(0, len(lines), BLOCK)
        for some in [lines[first : first + BLOCK]]
    ]
    translated = ray.data.from_arrow(blocks).map_batches(
        _translate_block,
        batch_size=None,
        batch_format="pyarrow",
        fn_kwargs={"work": work},
        num_cpus=work.workers,
    )
    done = 0
    for table in translated.iter_batches(batch_size=None, batch_format="pyarrow"):
        numbers = table["number"].to_pylist()
        if numbers != list(range(done, done + len(numbers))):
            raise RuntimeError(f"Ray gave the lines {numbers[:3]}... after {done}")
        done += len(numbers)
        yield table["text"].to_pylist()
    if done != len(lines):
        raise RuntimeError(f"Ray gave {done} of {len(lines)} lines")


def _translate_block(block: Any, work: Work) -> Any:
    """A task on a node: the answers in the place of the lines."""
    import pyarrow as pa

    from kutta.commands.translate import answers_of

    if work.version != __version__:
        raise InputError(
            f"A node has Kutta {__version__} and the command {work.version}; install the same."
        )
    translator = _translator(work.models, work.workers)
    lines: Iterable[str] = block["text"].to_pylist()
    found = answers_of(translator, work.n_best, work.as_json, iter(lines), work.options)
    return block.set_column(1, "text", pa.array(list(found), pa.string()))


@lru_cache(maxsize=1)
def _translator(models: Any, workers: int) -> Translator:
    """The translator of this process, which has further blocks to come.

    Its graphs are opened at once, so its files need not stay.
    """
    contents: list[Files] = cast(Any, import_module("ray")).get(models)
    with tempfile.TemporaryDirectory(prefix="kutta-") as place:
        folders = [Path(place) / str(number) for number in range(len(contents))]
        for folder, files in zip(folders, contents, strict=True):
            folder.mkdir()
            for name, content in files.items():
                (folder / name).write_bytes(content)
        translator = Translator.load(folders, "cpu", _ignore, workers)
        translator.translate(["1"])
    return translator


def _ignore(remark: str) -> None:
    """A node has nobody to tell, and the numbers of lines in it would be those of a block."""


def _reason(error: BaseException) -> str:
    """The last line of an error, which says most where Ray puts tracebacks before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:200].rstrip(".")

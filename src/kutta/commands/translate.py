"""`kutta translate`: a file or standard input, line by line."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import tee
from pathlib import Path
from typing import Unpack

from kutta.commands.output import text_output
from kutta.commands.progress import progress, remark, uninterrupted
from kutta.config import Sampling, SearchOptions
from kutta.data.corpus import read_lines, read_stream
from kutta.errors import InputError
from kutta.runtime import is_exported
from kutta.translate.translator import Scored, Translator


def translate_text(
    runs: Sequence[Path],
    input: Path | None,
    output: Path | None,
    n_best: int,
    sampling: Sampling | None,
    device: str,
    as_json: bool,
    checkpoint: str | None = None,
    workers: int | None = None,
    **search: Unpack[SearchOptions],
) -> None:
    """Translate a file or standard input, line by line.

    On Ctrl-C the lines translated so far are in the output, and KeyboardInterrupt says how many.
    """
    folders = [chosen_folder(folder, checkpoint) for folder in runs]
    translator = Translator.load(folders, device, remark, workers)
    typed = input is None and sys.stdin.isatty()
    if typed:
        language = translator.languages[0]
        remark(f"type a sentence ({language}) and press Enter to translate it; Ctrl-D ends.")
    lines, sources = tee(
        read_stream(sys.stdin.buffer, "standard input") if input is None else read_lines(input)
    )
    # Lines that appear on the terminal show the progress themselves.
    quiet = typed or (output is None and sys.stdout.isatty())
    done, stopped = 0, False
    with (
        text_output(output) as out,
        progress("translating", lambda: _count(input), not quiet) as on_lines,
    ):
        answers = translator.hypotheses_stream(
            lines,
            n_best,
            sampling=sampling,
            chunk=1 if typed else None,
            on_lines=on_lines,
            **search,
        )
        try:
            for found in answers:
                with uninterrupted():
                    out.write(_answer(next(sources), found, n_best, as_json))
                    done += 1
                    if typed:
                        out.flush()
        except KeyboardInterrupt:
            stopped = True
    if stopped:
        place = "" if output is None else f", which are in {output}"
        raise KeyboardInterrupt(f"interrupted after {done:,} {_lines(done)}{place}")


def chosen_folder(folder: Path, checkpoint: str | None) -> Path:
    """The folder of an exported model, or of a run or the checkpoint that was chosen."""
    if is_exported(folder):
        if checkpoint is not None:
            raise InputError(
                f"{folder} is an exported model, which has no checkpoints; remove --checkpoint."
            )
        return folder
    from kutta.runs import Run

    return Run.load(folder, checkpoint).folder


def _answer(source: str, found: Sequence[Scored], n_best: int, as_json: bool) -> str:
    """What is written for one line of the input."""
    if as_json:
        translations = [{"text": text, "score": score} for text, score in found]
        answer = {"source": source, "translations": translations}
        return json.dumps(answer, ensure_ascii=False) + "\n"
    if n_best == 1:
        return f"{found[0][0]}\n"
    return "".join(f"{score:.4f}\t{text}\n" for text, score in found) + "\n"


def _lines(count: int) -> str:
    return "line" if count == 1 else "lines"


def _count(path: Path | None) -> int | None:
    """The lines of a file if they can be counted: a pipe can be read only once."""
    if path is not None and path.is_file():
        with suppress(InputError):  # told when the line is reached
            return sum(1 for _ in read_lines(path))
    return None

"""`kutta translate`: a document, or a file or standard input line by line."""

import json
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import tee
from pathlib import Path
from typing import Any, TextIO, Unpack

from kutta.commands.cluster import answers_on_cluster, check_clustered
from kutta.commands.document import check_document, translate_document
from kutta.commands.output import text_output
from kutta.commands.progress import progress, remark, uninterrupted
from kutta.commands.resume import check_resumable, facts_of, resumed_output, without_first
from kutta.config import Sampling, SearchOptions
from kutta.data.corpus import read_lines, read_stream
from kutta.documents.formats import Job, format_of
from kutta.documents.lines import translate_lines
from kutta.documents.sentences import is_short
from kutta.errors import InputError
from kutta.runtime import find_exported
from kutta.translate.segments import Scored
from kutta.translate.translator import Options, Translator


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
    resume: bool = False,
    ray: str | None = None,
    **search: Unpack[SearchOptions],
) -> None:
    """Translate a document, or a file or standard input line by line.

    On Ctrl-C the lines translated so far are in the output, and KeyboardInterrupt says how many. Of
    a document nothing is written. With `resume` the same call continues an output that was begun.
    `ray` is the address of a Ray cluster that translates.
    """
    document = input if input is not None and format_of(input) else None
    if document:
        check_document(document, output, n_best, as_json)
    if resume:
        output = check_resumable(output, document, n_best == 1 or as_json, sampling is not None)
    folders = [chosen_folder(folder, checkpoint) for folder in runs]
    if ray is not None:
        check_clustered(folders, document, sampling is not None)
    translator = Translator.load(folders, device, remark, workers)
    (source, target), options = translator.languages, Options(sampling=sampling, **search)
    if document:
        with progress("translating", lambda: None) as on_lines:
            options["on_lines"] = on_lines
            job = Job(partial(translator.translate, **options), source, target)
            translate_document(document, output, job._replace(fits=partial(fits_model, translator)))
    else:
        facts = facts_of(folders, input, n_best, as_json, search) if resume else None
        translator.hypotheses_stream([], n_best, **options)  # now, if an option is wrong
        answer = partial(answers_of, translator, n_best, as_json)
        if ray is not None:
            answer = partial(answers_on_cluster, ray, folders, workers or 1, n_best, as_json)
        _translate_lines(answer, source, input, output, options, facts)


def _translate_lines(
    answer: Callable[[Iterator[str], Options], Iterator[str]],
    language: str,
    input: Path | None,
    output: Path | None,
    options: Options,
    facts: dict[str, Any] | None,
) -> None:
    typed = input is None and sys.stdin.isatty()
    if typed:
        options["chunk"] = 1
        remark(f"type a sentence ({language}) and press Enter to translate it; Ctrl-D ends.")
    lines = read_stream(sys.stdin.buffer, "standard input") if input is None else read_lines(input)
    # Lines that appear on the terminal show the progress themselves.
    quiet = typed or (output is None and sys.stdout.isatty())
    done, stopped = 0, False
    with (
        _opened(output, facts) as (out, before),
        progress("translating", lambda: _count(input), not quiet) as on_lines,
    ):
        options["on_lines"] = on_lines
        if before:
            lines = without_first(lines, before)
            remark(f"{before:,} {_lines(before)} of {output} are there already; this continues.")
            if on_lines:
                on_lines(before)
        try:
            for written in answer(lines, options):
                with uninterrupted():
                    out.write(written)
                    done += 1
                    if typed:
                        out.flush()
        except KeyboardInterrupt:
            if facts is not None:
                done += before
                raise KeyboardInterrupt(
                    f"interrupted after {done:,} {_lines(done)}; the same command continues"
                ) from None
            stopped = True
    if stopped:
        place = "" if output is None else f", which are in {output}"
        raise KeyboardInterrupt(f"interrupted after {done:,} {_lines(done)}{place}")


@contextmanager
def _opened(output: Path | None, facts: dict[str, Any] | None) -> Generator[tuple[TextIO, int]]:
    """The output, and how many lines it has already; see resume.py for the facts."""
    if facts is None or output is None:
        with text_output(output) as out:
            yield out, 0
    else:
        with resumed_output(output, facts) as found:
            yield found


def chosen_folder(folder: Path, checkpoint: str | None) -> Path:
    """The folder of an exported model, or of a run or the checkpoint that was chosen."""
    if exported := find_exported(folder):
        if checkpoint is not None:
            raise InputError(
                f"{folder} is an exported model, which has no checkpoints; remove --checkpoint."
            )
        return exported
    from kutta.runs import Run

    return Run.load(folder, checkpoint).folder


def answers_of(
    translator: Translator, n_best: int, as_json: bool, lines: Iterator[str], options: Options
) -> Iterator[str]:
    """What is written for each line, in order."""
    if n_best > 1 or as_json:
        return _scored(translator, lines, n_best, as_json, options)
    return _texts(translator, lines, options)


def _texts(translator: Translator, lines: Iterator[str], options: Options) -> Iterator[str]:
    """The best translation of each line; a line that is too long for the model is split."""
    language, _ = translator.languages
    stream = partial(translator.translate_stream, **options)
    is_one, fits = partial(_is_within, translator), partial(fits_model, translator)
    if translator.max_source:  # lines are cut as in training
        return (f"{text}\n" for text in stream(lines))
    return (f"{text}\n" for text in translate_lines(lines, stream, is_one, language, fits))


def _is_within(translator: Translator, text: str) -> bool:
    """Whether the model reads the text to its end. No text has more tokens than bytes."""
    limit = translator.max_source or translator.longest
    encode = translator.tokenizers.source.encode
    return len(text.encode("utf-8", "replace")) <= limit or len(encode(text)) <= limit


def fits_model(translator: Translator, text: str) -> bool:
    """Whether a text is short enough to be translated as a sentence."""
    return is_short(text) and _is_within(translator, text)


def _scored(
    translator: Translator, lines: Iterator[str], n_best: int, as_json: bool, options: Options
) -> Iterator[str]:
    """What is written for each line, with scores."""
    lines, sources = tee(lines)
    found = translator.hypotheses_stream(lines, n_best, **options)
    return (_answer(next(sources), some, n_best, as_json) for some in found)


def _answer(source: str, found: Sequence[Scored], n_best: int, as_json: bool) -> str:
    """What is written for one line of the input."""
    if as_json:
        translations = [{"text": text, "score": score} for text, score in found]
        answer = {"source": source, "translations": translations}
        return json.dumps(answer, ensure_ascii=False) + "\n"
    return "".join(f"{score:.4f}\t{text}\n" for text, score in found) + "\n"


def _lines(count: int) -> str:
    return "line" if count == 1 else "lines"


def _count(path: Path | None) -> int | None:
    """The lines of a file if they can be counted: a pipe can be read only once."""
    if path is not None and path.is_file():
        with suppress(InputError):  # told when the line is reached
            return sum(1 for _ in read_lines(path))
    return None

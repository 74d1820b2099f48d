"""The command that translates text."""

import os
from pathlib import Path
from typing import Annotated, Unpack

import typer

from kutta.box.hub import is_hub_name
from kutta.cli.app import AsJson, Checkpoint, Device, app, search_options
from kutta.cli.complete import runs as run_names
from kutta.config import Sampling, SearchOptions
from kutta.documents.formats import format_of
from kutta.errors import InputError

# The search options that sampling uses; it has no beam and no length penalty.
_WITH_SAMPLING = ("min_length", "max_length", "no_repeat_ngram")


@app.command()
@search_options
def translate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN... [FILE]",
            help="Give a run directory, one of its checkpoints, or the name of a model in the box. "
            "Several of them form an ensemble. Then give the file to translate, or standard input "
            "is.",
            autocompletion=run_names,
        ),
    ],
    input: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Translate this file: text, which may be compressed (.gz, .zst), or .po, .tmx, "
            ".srt, .html or .docx.",
            show_default="standard input",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write to this file, compressed if its name ends in .gz or .zst.",
            show_default="standard output",
        ),
    ] = None,
    *,
    checkpoint: Checkpoint = None,
    n_best: Annotated[
        int, typer.Option(metavar="N", help="Write this many translations of each line.")
    ] = 1,
    sample: Annotated[
        bool,
        typer.Option("--sample", help="Sample translations instead of searching for the best."),
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="T", help="Sample at this temperature, with --sample.", show_default="1.0"
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Sample from the K likeliest tokens, with --sample; 0 is all.",
            show_default="0",
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Sample from the fewest tokens whose probabilities add up to P, with --sample.",
            show_default="1.0",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Start the random numbers from this seed, with --sample.",
            show_default="1",
        ),
    ] = None,
    device: Device = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Search with N workers of one thread each, with an exported model.",
            show_default="as many as cores",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue --output where a killed command stopped."),
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Translate on the Ray cluster at this address, or at auto, with an exported "
            "model; each task then has --workers N cores, by default 1.",
            show_default="on this machine",
        ),
    ] = None,
    json: AsJson = False,
    **search: Unpack[SearchOptions],
) -> None:
    """Translate text line by line, or a document.

    Each input line gives one output line; empty lines stay empty. With --n-best N, each input line
    gives up to N lines of score, tab and translation, followed by an empty line. With --json, each
    input line gives one object with the source, its translations and their scores. Ctrl-C stops
    and keeps the lines translated so far.

    A .po file gets its untranslated messages filled, a .tmx file its missing segments. Subtitles
    (.srt), pages (.html) and documents (.docx) keep their times, tags and formatting.
    """
    from kutta.commands import translate_text

    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    given = {name: value for name, value in drawn.items() if value is not None}
    if given and not sample:
        raise InputError(f"{_written(next(iter(given)))} has no effect without --sample; add it.")
    for name, value in search.items():
        if sample and value is not None and name not in _WITH_SAMPLING:
            raise InputError(f"{_written(name)} has no effect with --sample; remove one of them.")
    sampling = Sampling(**given) if sample else None  # type: ignore[arg-type]
    runs, input = _without_file(runs, input)
    translate_text(
        runs,
        input,
        output,
        n_best,
        sampling,
        device,
        json,
        checkpoint,
        workers,
        resume,
        ray,
        **search,
    )


def _without_file(given: list[Path], input: Path | None) -> tuple[list[Path], Path | None]:
    """The runs, and the input: --input, or what is given last if it is a file."""
    *runs, last = given
    is_file = runs and input is None and (os.path.isfile(last) or _is_missing_file(last))
    return (runs, last) if is_file else (given, input)


def _is_missing_file(path: Path) -> bool:
    """Whether this is not there, and by its name a file, such as text.en."""
    # Unlike that of Path, this function raises no error where a name is too long for a file.
    if os.path.exists(path) or is_hub_name(path):
        return False
    return format_of(path) is not None or path.suffix[1:].isalpha()


def _written(name: str) -> str:
    return f"--{name.replace('_', '-')}"

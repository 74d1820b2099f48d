"""The commands that measure and choose models: evaluate, score, average."""

from pathlib import Path
from typing import Annotated, Any, Unpack

import typer

from kutta.cli.app import AsJson, Checkpoint, Device, Run, app, print_json, search_options
from kutta.cli.complete import metrics, runs
from kutta.config import SearchOptions
from kutta.errors import InputError


@app.command()
@search_options
def evaluate(
    run: Run,
    test: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEST",
            help="Give the names of test sets.",
            show_default="those of the config",
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Read the test files from this folder.",
            show_default="text in the run",
        ),
    ] = None,
    *,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    json: AsJson = False,
    **search: Unpack[SearchOptions],
) -> None:
    """Score a run on test sets.

    Translations are scored by tokenised BLEU, sacreBLEU and chrF, a language model by its
    perplexity per word. Every score is printed with its signature. Ctrl-C stops and keeps the
    scores of the test sets that are finished.
    """
    from kutta.commands import evaluations

    results: list[dict[str, Any]] = []
    try:
        for result in evaluations(run, test or [], data_dir, device, checkpoint, **search):
            results.append(result.to_dict())
            if json:
                continue
            typer.echo(f"{result.test}: {result.sentences:,} sentences [{result.signature}]")
            for score in result.scores:
                typer.echo(f"  {score}")
            if result.hypotheses is not None:
                typer.echo(f"  translations: {result.hypotheses}")
    except KeyboardInterrupt:
        if json and results:
            print_json(results)
        raise
    if json:
        print_json(results)


@app.command()
def score(
    hypothesis: Annotated[
        Path,
        typer.Argument(metavar="HYPOTHESIS", help="Give a file of translations, one per line."),
    ],
    reference: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="REFERENCE",
            help="Give one or several reference files; with --run they can be left out.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="Use bleu, sacrebleu, chrf, chrf++, rouge1, rouge2 or rougel. It can be repeated.",
            show_default="bleu, sacrebleu, chrf",
            autocompletion=metrics,
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Score as `kutta evaluate RUN` does, with the settings and references of the run.",
            autocompletion=runs,
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Take the references from this test set of the run, with --run.",
            show_default="by the name of the file",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare with these translations of another system by paired bootstrap.",
        ),
    ] = None,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Ignore case, for bleu, sacrebleu and chrf.")
    ] = False,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE", help="Tokenise raw text with the rules of a language, for bleu."
        ),
    ] = None,
    split_compounds: Annotated[
        bool,
        typer.Option(
            "--split-compounds", help="Split German compounds at hyphens as for WMT14, for bleu."
        ),
    ] = False,
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Draw this many samples, with --against.", show_default="1000"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Start the random numbers from this seed, with --against.",
            show_default="1",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Score a file of translations, or compare two systems.

    Files may be compressed (.gz, .zst). BLEU is for tokenised text, or for raw text with
    --tokenize; sacreBLEU and chrF are for raw text. With --run RUN the scores are those of
    `kutta evaluate RUN`.
    """
    from kutta.commands.score import SAMPLES, SEED, Bootstrap, Tokens, score_files, score_like_run

    if against is None and (samples is not None or seed is not None):
        option = "--seed" if samples is None else "--samples"
        raise InputError(f"{option} has no effect without --against; remove it.")
    bootstrap = None
    if against is not None:
        bootstrap = Bootstrap(
            against, SAMPLES if samples is None else samples, SEED if seed is None else seed
        )
    tokens = Tokens(lowercase, tokenize, split_compounds)
    if run is None:
        if test is not None:
            raise InputError(f"--test {test} has no effect without --run; add --run RUN.")
        results = score_files(hypothesis, reference or [], metric or [], tokens, bootstrap)
    elif tokens != Tokens():
        raise InputError(
            "--run takes case and tokenisation from the run; remove --lowercase, --tokenize and "
            "--split-compounds."
        )
    else:
        results = score_like_run(hypothesis, reference or [], run, test, metric or [], bootstrap)
    if json:
        print_json([result.to_dict() for result in results])
    else:
        typer.echo("\n".join(str(result) for result in results))


@app.command()
def average(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Give a run directory.", autocompletion=runs)
    ],
    last: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Average the last N checkpoints.",
            show_default="decode.average of the run",
        ),
    ] = None,
    step: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Average the checkpoint of this step. It can be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the weights to this .safetensors file.",
            show_default="model.safetensors of the run",
        ),
    ] = None,
) -> None:
    """Average checkpoints of a run into one model.

    The average replaces the final model of the run, unless --output names another file. With a
    single checkpoint, the model has its weights.
    """
    from kutta.commands import average_run

    typer.echo(average_run(run, last, step or [], output))

"""The commands for one run: prepare, train, translate, evaluate."""

from pathlib import Path
from typing import Annotated, Unpack

import typer
from rich.console import Console

from kutta.cli.app import (
    AsJson,
    ConfigFile,
    Device,
    DryRun,
    Overwrite,
    Run,
    Seed,
    Settings,
    app,
    print_json,
    search_options,
)
from kutta.config import Config, Sampling, SearchOptions


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Output folder for the corpus and the run.")
    ] = Path("kutta-demo"),
    solver: Annotated[
        str, typer.Option(metavar="METHOD", help="Method of the encoder's blocks.")
    ] = "rk2",
    seed: Seed = 1,
    overwrite: Overwrite = False,
) -> None:
    """Train and evaluate a small model on a built-in corpus.

    The demo translates from English to German and takes at most five minutes on two cores. Run
    the same command to resume after an interruption.
    """
    from kutta.demo.demo import run_demo

    run_demo(folder, solver, seed, overwrite, Console())


@app.command()
def prepare(
    config: ConfigFile, set: Settings = None, overwrite: Overwrite = False, json: AsJson = False
) -> None:
    """Learn the vocabulary and encode the text for training.

    `kutta train` does this automatically if needed. --overwrite prepares the text again and
    changes nothing else in the run.
    """
    from kutta.runs import locked, open_run, prepare_run

    settings = Config.load(config, set or ())
    with locked(Path(settings.run)):
        run = open_run(settings)
        if overwrite:
            run.remove_text()
        report = prepare_run(run)
    if json:
        print_json(run.read_report())
    elif report is None:
        typer.echo(f"{run.stores} already exists; add --overwrite to recreate it.")
    else:
        typer.echo(f"{report}\nwritten to {run.stores}")


@app.command()
def train(
    config: ConfigFile, set: Settings = None, overwrite: Overwrite = False, dry_run: DryRun = False
) -> None:
    """Train a model, or resume its training.

    Prepares the data if needed, validates, saves checkpoints, and finally averages the last of
    them into model.safetensors. Ctrl-C saves and stops; run the same command to resume.
    """
    settings = Config.load(config, set or ())
    if dry_run:
        from kutta.training.run import dry_run_summary

        typer.echo(dry_run_summary(settings))
        return
    from kutta.training.parallel.group import is_main_process
    from kutta.training.run import train as train_run

    outcome = train_run(settings, overwrite)
    if outcome.ended == "interrupted":
        raise typer.Exit(130)
    if not is_main_process():
        return
    if settings.language_model:
        typer.echo(f"try it:  kutta sample {outcome.run}")
    else:
        typer.echo(f"try it:  echo '...' | kutta translate {outcome.run}")


@app.command()
@search_options
def translate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="A run directory or a checkpoint; several form an ensemble."
        ),
    ],
    input: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Text file to translate, plain, .gz or .zst.",
            show_default="standard input",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Output file.", show_default="standard output"),
    ] = None,
    *,
    n_best: Annotated[int, typer.Option(metavar="N", help="Number of translations per line.")] = 1,
    sample: Annotated[
        bool, typer.Option(help="Sample a translation instead of beam search.")
    ] = False,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="Sampling temperature, with --sample.")
    ] = 1.0,
    top_k: Annotated[
        int,
        typer.Option(
            metavar="K", help="Sample from the K likeliest tokens, with --sample; 0 for all."
        ),
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(
            metavar="P",
            help="Sample from the fewest tokens whose probabilities add up to P, with --sample.",
        ),
    ] = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed, with --sample.")] = 1,
    device: Device = "auto",
    json: AsJson = False,
    **search: Unpack[SearchOptions],
) -> None:
    """Translate text line by line.

    Each input line gives one output line; empty lines stay empty. With --n-best N, each input line
    gives up to N lines of score, tab and translation, followed by an empty line. With --json, each
    input line gives one object with the source, its translations and their scores.
    """
    from kutta.commands import translate_text

    sampling = None
    if sample:
        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    translate_text(runs, input, output, n_best, sampling, device, json, **search)


@app.command()
@search_options
def evaluate(
    run: Run,
    test: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEST", help="Names of test sets.", show_default="those of the config"
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Folder of the test files.", show_default="setting of the run"
        ),
    ] = None,
    *,
    device: Device = "auto",
    json: AsJson = False,
    **search: Unpack[SearchOptions],
) -> None:
    """Score a run on test sets.

    Translations are scored by tokenised BLEU, sacreBLEU and chrF, a language model by its
    perplexity per word. Every score is printed with its signature.
    """
    from kutta.commands import evaluate_run

    results = evaluate_run(run, test or [], data_dir, device, **search)
    if json:
        print_json([result.to_dict() for result in results])
        return
    for result in results:
        typer.echo(f"{result.test}: {result.sentences:,} sentences [{result.signature}]")
        for score in result.scores:
            typer.echo(f"  {score}")
        if result.hypotheses is not None:
            typer.echo(f"  translations: {result.hypotheses}")


@app.command()
def score(
    hypothesis: Annotated[
        Path, typer.Argument(metavar="HYPOTHESIS", help="A file of translations, one per line.")
    ],
    reference: Annotated[
        list[Path], typer.Argument(metavar="REFERENCE", help="One or several reference files.")
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="bleu, sacrebleu, chrf, chrf++, rouge1, rouge2 or rougel. Can be repeated.",
            show_default="bleu, sacrebleu, chrf",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare with the translations of another system by bootstrap."
        ),
    ] = None,
    lowercase: Annotated[bool, typer.Option(help="Ignore case, for bleu.")] = False,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE", help="Tokenise raw text with the rules of a language, for bleu."
        ),
    ] = None,
    split_compounds: Annotated[
        bool,
        typer.Option(help="Split German compounds at hyphens as for WMT14, for bleu."),
    ] = False,
    samples: Annotated[int, typer.Option(metavar="N", help="Number of bootstrap samples.")] = 1000,
    seed: Seed = 1,
    json: AsJson = False,
) -> None:
    """Score a file of translations, or compare two systems."""
    from kutta.commands import score_files

    results = score_files(
        hypothesis,
        reference,
        metric or [],
        against,
        lowercase,
        tokenize,
        split_compounds,
        samples,
        seed,
    )
    if json:
        print_json([result.to_dict() for result in results])
    else:
        typer.echo("\n".join(str(result) for result in results))


@app.command()
def average(
    run: Run,
    last: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Average the last N checkpoints.",
            show_default="decode.average of the run",
        ),
    ] = 0,
    step: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Average the checkpoint of this step. Can be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Output file.", show_default="model.safetensors of the run"
        ),
    ] = None,
) -> None:
    """Average checkpoints into one model."""
    from kutta.commands import average_run

    typer.echo(average_run(run, last, step or [], output))

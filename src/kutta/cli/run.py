"""The commands around one run: from a config to a trained model and its scores."""

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
    Settings,
    app,
    print_json,
    search_options,
)
from kutta.config import Config, Sampling, SearchOptions


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="where to put text and run")] = Path("kutta-demo"),
    solver: Annotated[str, typer.Option(help="the method of the encoder's blocks")] = "rk2",
    seed: Annotated[int, typer.Option(help="everything random follows from it")] = 1,
    overwrite: Overwrite = False,
) -> None:
    """Train a small English-German model on a built-in corpus and show what it can do.

    Takes at most five minutes on two cores. Running it again goes on where it stopped.
    """
    from kutta.demo.demo import run_demo

    run_demo(folder, solver, seed, overwrite, Console())


@app.command()
def prepare(
    config: ConfigFile, set: Settings = None, overwrite: Overwrite = False, json: AsJson = False
) -> None:
    """Learn the vocabulary and turn the text files into the store that training reads.

    `kutta train` does this by itself where it is missing. --overwrite makes the store anew and
    touches nothing else of the run.
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
        typer.echo(f"{run.stores} is there already; add --overwrite to make it again.")
    else:
        typer.echo(f"{report}\nwritten to {run.stores}")


@app.command()
def train(
    config: ConfigFile, set: Settings = None, overwrite: Overwrite = False, dry_run: DryRun = False
) -> None:
    """Train a model, or go on where the training of this config stopped.

    Prepares the data where needed, validates, keeps checkpoints, and at the end averages the
    last of them into model.safetensors. Ctrl-C saves and stops; the same command goes on.
    """
    settings = Config.load(config, set or ())
    if dry_run:
        from kutta.training.run import plan_of

        typer.echo(plan_of(settings))
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
        typer.Argument(help="the folder of a run or a checkpoint; several form an ensemble"),
    ],
    input: Annotated[
        Path | None, typer.Option(help="text file (.gz, .zst)", show_default="standard input")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="file to write", show_default="standard output")
    ] = None,
    *,
    n_best: Annotated[int, typer.Option(help="translations per line: score, tab, text")] = 1,
    sample: Annotated[bool, typer.Option(help="draw a translation instead of searching")] = False,
    temperature: Annotated[float, typer.Option(help="with --sample: 1 is the model's own")] = 1.0,
    top_k: Annotated[int, typer.Option(help="with --sample: likeliest tokens; 0 for all")] = 0,
    top_p: Annotated[float, typer.Option(help="with --sample: share of the mass kept")] = 1.0,
    seed: Annotated[int, typer.Option(help="with --sample")] = 1,
    device: Device = "auto",
    json: AsJson = False,
    **search: Unpack[SearchOptions],
) -> None:
    """Translate lines of text: one line in, one line out; empty lines stay empty.

    With --json each line is an object with the source and its translations and scores; with
    --n-best N each line in gives up to N lines out, with an empty line after each group.
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
        list[str] | None, typer.Argument(help="names of test sets", show_default="the config's")
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="folder of the test files", show_default="the config's")
    ] = None,
    *,
    device: Device = "auto",
    json: AsJson = False,
    **search: Unpack[SearchOptions],
) -> None:
    """Score a run on test sets, with signatures.

    Translations by tokenised BLEU, sacreBLEU and chrF, a language model by perplexity per word.
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
    hypothesis: Annotated[Path, typer.Argument(help="translations, one a line")],
    reference: Annotated[list[Path], typer.Argument(help="reference text, one or several")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="bleu, sacrebleu, chrf, chrf++, rouge1, rouge2 or rougel",
            show_default="bleu, sacrebleu, chrf",
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="another system: compare by paired bootstrap")
    ] = None,
    lowercase: Annotated[bool, typer.Option(help="ignore case (bleu)")] = False,
    tokenize: Annotated[
        str | None, typer.Option(metavar="LANGUAGE", help="tokenise raw text first (bleu)")
    ] = None,
    split_compounds: Annotated[
        bool, typer.Option(help="split German compounds at hyphens, as for WMT14 (bleu)")
    ] = False,
    samples: Annotated[int, typer.Option(help="of the bootstrap")] = 1000,
    seed: Annotated[int, typer.Option(help="of the bootstrap")] = 1,
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
    last: Annotated[int, typer.Option(help="how many of the last checkpoints")] = 0,
    step: Annotated[
        list[int] | None, typer.Option(help="or the checkpoints of these steps")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="file to write", show_default="the run's model.safetensors")
    ] = None,
) -> None:
    """Average checkpoints into one model, to try another number than decode.average."""
    from kutta.commands import average_run

    typer.echo(average_run(run, last, step or [], output))

"""`kutta analyze`: measure, write JSON and figures, show tables."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.progress import track as progress_bar
from rich.table import Table

from kutta.analysis import figures, tables
from kutta.analysis.blocks import measure_blocks
from kutta.analysis.embedding import measure_embedding
from kutta.analysis.gradients import measure_gradients
from kutta.analysis.inference import METHODS as INFERENCE_METHODS
from kutta.analysis.inference import check_inference, measure_inference
from kutta.analysis.subject import Subject, Track, load_subject
from kutta.analysis.truncation import measure_truncation
from kutta.analysis.variants import not_an_ode
from kutta.config.mistakes import sentence, suggest
from kutta.data.batches import Batch
from kutta.errors import InputError
from kutta.files import write_json
from kutta.ode import METHODS
from kutta.plotting import Figure, new_figure

Result = dict[str, Any]


@dataclass(frozen=True)
class Analysis:
    """How to measure, draw and tabulate; `of_ode` needs blocks that are steps of an ODE."""

    measure: Callable[[Subject, Track], Result]
    draw: Callable[[Figure, Result], None]
    tabulate: Callable[[Result], Iterator[Table]]
    of_ode: bool = False


ANALYSES: dict[str, Analysis] = {
    "truncation": Analysis(
        measure_truncation, figures.draw_truncation, tables.truncation_tables, of_ode=True
    ),
    "blocks": Analysis(measure_blocks, figures.draw_blocks, tables.blocks_tables),
    "gradients": Analysis(measure_gradients, figures.draw_gradients, tables.gradients_tables),
    "embedding": Analysis(measure_embedding, figures.draw_embedding, tables.embedding_tables),
    "inference": Analysis(
        measure_inference, figures.draw_inference, tables.inference_tables, of_ode=True
    ),
}


@dataclass(frozen=True)
class Request:
    """What to analyse; empty or None means the default."""

    run: Path
    what: Sequence[str] = ()
    sentences: int = 64
    test: str | None = None
    data_dir: str | None = None
    out: Path | None = None
    device: str = "auto"
    methods: Sequence[str] = ()
    bleu: bool = False

    @property
    def inference_methods(self) -> Sequence[str]:
        return self.methods or INFERENCE_METHODS


def analyze(request: Request, console: Console) -> dict[str, Result]:
    """Run the requested analyses; write and show each as soon as it is done."""
    _check(request)
    subject = load_subject(
        request.run, request.sentences, request.test, request.data_dir, request.device
    )
    out = request.out or subject.run.outputs("analysis")
    track = partial(_track, console)
    results: dict[str, Result] = {}
    chosen = _chosen(request, subject, console)
    if "inference" in chosen:
        check_inference(subject, request.inference_methods, request.bleu)
    _make(out)
    for name in chosen:
        analysis = ANALYSES[name]
        measure = analysis.measure
        if name == "inference":
            methods, bleu = request.inference_methods, request.bleu
            measure = partial(measure_inference, methods=methods, bleu=bleu)
        result = cast(Result, _finite(measure(subject, track)))
        write_json(out / f"{name}.json", result)
        pictures = [out / f"{name}.{kind}" for kind in ("png", "svg")]
        with new_figure(*pictures) as figure:
            analysis.draw(figure, result)
        for table in analysis.tabulate(result):
            tables.show(table, console)
        written = ", ".join(path.name for path in (out / f"{name}.json", *pictures))
        console.print(f"{out}: {written}\n", highlight=False, markup=False, soft_wrap=True)
        results[name] = result
    return results


def _check(request: Request) -> None:
    """Reject unknown names before anything is loaded."""
    for name in request.what:
        if name not in ANALYSES:
            near = suggest(name, [*ANALYSES])
            raise InputError(sentence(f"There is no analysis {name!r}{near}"))
    for method in request.methods:
        if method not in METHODS:
            near = suggest(method, list(METHODS))
            raise InputError(sentence(f"There is no method {method!r}{near}"))
    if request.what and "inference" not in request.what and _of_inference(request):
        raise InputError(
            f"{_of_inference(request)[0]} is for the analysis inference, which was not requested; "
            "add inference, or remove the option."
        )
    if request.sentences < 1:
        raise InputError(f"--sentences {request.sentences} is not valid; it must be at least 1.")


def _of_inference(request: Request) -> list[str]:
    """The given options that are for inference only."""
    return ["--method"] * bool(request.methods) + ["--bleu"] * request.bleu


def _chosen(request: Request, subject: Subject, console: Console) -> list[str]:
    """The requested analyses, or all that this model supports."""
    reason = not_an_ode(subject.config.model)
    names = list(dict.fromkeys(request.what)) or list(ANALYSES)
    if reason is None:
        return names
    refused = [name for name in names if ANALYSES[name].of_ode]
    asked = [*request.what, *_of_inference(request)]
    if asked and refused:
        name = next((name for name in asked if name in refused), "inference")
        raise InputError(
            f"The analysis {name!r} needs blocks that are steps of an ODE, but {reason}; "
            "choose blocks, gradients or embedding."
        )
    skipped = f"skipped: {', '.join(refused)}, because {reason}"
    console.print(skipped, highlight=False, markup=False)
    return [name for name in names if name not in refused]


def _make(out: Path) -> None:
    """Create the folder now, to find out that it is not writable before minutes of work."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Cannot create the folder {out} ({error.strerror or error}); choose another --out."
        ) from error


def _track(console: Console, batches: Sequence[Batch], title: str) -> Iterable[Batch]:
    return progress_bar(
        batches, title, console=console, transient=True, disable=not console.is_terminal
    )


def _finite(value: Any) -> Any:
    """The same with None for non-finite numbers, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in cast(list[Any], value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value

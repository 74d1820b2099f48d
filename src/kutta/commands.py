"""The implementation of the commands, without the parsing of their options."""

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import tee
from pathlib import Path
from typing import Any, TextIO, Unpack

from kutta.config import Config, Sampling, SearchOptions
from kutta.config.data import GERMAN, language_of
from kutta.data.corpus import read_lines, read_stream
from kutta.data.prepare import expected_vocabulary
from kutta.errors import InputError
from kutta.files import atomic_path
from kutta.metrics import METRICS, Comparison, Score, multi_bleu, paired_bootstrap
from kutta.model.arithmetic import cost_of
from kutta.model.build import build_model
from kutta.runs import Run, choose_device
from kutta.runs.checkpoints import average
from kutta.runs.run import CONFIG
from kutta.training.card import depth, unusual
from kutta.training.validate import word_perplexity
from kutta.translate.evaluate import Evaluation, evaluate, test_names, texts_of
from kutta.translate.translator import Translator


def translate_text(
    runs: Sequence[Path],
    input: Path | None,
    output: Path | None,
    n_best: int,
    sampling: Sampling | None,
    device: str,
    as_json: bool,
    **search: Unpack[SearchOptions],
) -> None:
    """Translate a file or standard input, line by line."""
    translator = Translator.load(list(runs), device, warn=_warn)
    # On a terminal each line is translated at once; pipes and files are read in chunks.
    chunk = 1 if input is None and sys.stdin.isatty() else None
    lines, copies = tee(
        read_stream(sys.stdin.buffer, "standard input") if input is None else read_lines(input)
    )
    answers = translator.hypotheses_stream(lines, n_best, sampling=sampling, chunk=chunk, **search)
    with _writer(output) as out:
        for found in answers:
            source = next(copies)
            if as_json:
                translations = [{"text": text, "score": score} for text, score in found]
                answer = {"source": source, "translations": translations}
                print(json.dumps(answer, ensure_ascii=False), file=out)
            elif n_best == 1:
                print(found[0][0], file=out)
            else:
                print("".join(f"{score:.4f}\t{text}\n" for text, score in found), file=out)
            if chunk == 1:
                out.flush()


def evaluate_run(
    folder: Path,
    tests: Sequence[str],
    data_dir: str | None,
    device: str,
    **search: Unpack[SearchOptions],
) -> list[Evaluation]:
    """Score a run on test sets: BLEU and chrF of translations, perplexity of a language model."""
    run = Run.load(folder)
    if run.config.language_model:
        return evaluate_language_model(run, tests, data_dir, device)
    translator = Translator.load(folder, device, warn=_warn)
    return evaluate(run, translator, tests, data_dir, **search)


def evaluate_language_model(
    run: Run, tests: Sequence[str], data_dir: str | None, device: str
) -> list[Evaluation]:
    """The perplexity per word of each test set."""
    texts = texts_of(run, data_dir)
    pairs_of = {name: texts.test(name) for name in test_names(run, tests)}
    place = choose_device(device)
    model, tokenizer = run.load_model().to(place), run.tokenizers.target
    settings = run.config.train
    return [
        Evaluation(
            test=name,
            sentences=len(pairs),
            scores=[word_perplexity(model, tokenizer, [t for _, t in pairs], settings, place)],
            hypotheses=None,
            signature=run.signature,
        )
        for name, pairs in pairs_of.items()
    ]


def score_files(
    hypothesis: Path,
    references: Sequence[Path],
    names: Sequence[str],
    against: Path | None,
    lowercase: bool,
    language: str | None,
    split_compounds: bool,
    samples: int,
    seed: int,
) -> list[Score] | list[Comparison]:
    """Score a file against references, or compare it with another system's file."""
    if split_compounds and language_of(language or "de") not in GERMAN:
        raise InputError(
            f"--split-compounds is for translations into German, but --tokenize is {language!r}; "
            "remove it."
        )
    table = {**METRICS, "bleu": multi_bleu(lowercase, language, split_compounds)}
    for name in names:
        if name not in table:
            raise InputError(f"There is no metric {name!r}; choose from {', '.join(table)}.")
    metrics = [table[name] for name in names or ("bleu", "sacrebleu", "chrf")]
    texts = [list(read_lines(path)) for path in references]
    system = list(read_lines(hypothesis))
    if against is None:
        return [metric(system, texts) for metric in metrics]
    other = list(read_lines(against))
    return [paired_bootstrap(system, other, texts, m, samples, seed) for m in metrics]


def average_run(folder: Path, last: int, steps: Sequence[int], output: Path | None) -> str:
    """Average checkpoints of a run; return a message."""
    run = Run.load(folder)
    if steps:
        by_step = {one.step: one for one in run.checkpoints()}
        missing = [step for step in steps if step not in by_step]
        if missing:
            have = ", ".join(map(str, by_step)) or "none"
            raise InputError(f"{folder} has no checkpoint of step {missing[0]}; it has: {have}.")
        chosen = [by_step[step] for step in steps]
    else:
        chosen = run.regular_checkpoints()[-(last or run.config.decode.average) :]
    target = output or run.final_weights
    average(chosen, target)
    return f"{target}: the average of {', '.join(one.path.name for one in chosen)}"


def describe(what: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Facts about a config or a run, in the order to show them."""
    if what.is_dir() and not Run.is_at(what):
        raise InputError(f"{what} is not a run directory (it has no {CONFIG}).")
    config = Config.load(what / CONFIG if what.is_dir() else what, overrides)
    run = Run(what if what.is_dir() else Path(config.run), config)
    source, target, shared, known = _vocabularies(run)
    cost = cost_of(build_model(config.model, source, target, shared))
    shape, two_sided = config.model, not config.language_model
    decoder = {"decoder_method": shape.decoder_solver, "decoder_gamma": shape.decoder_gamma}
    checkpoints = run.checkpoints()
    return {
        "run": str(run.path),
        "config": config.hash(),
        "method": shape.solver,
        **({"tableau": own.description} if (own := shape.own_tableau()) else {}),
        "gamma": shape.gamma,
        "field": shape.field,
        **(decoder if two_sided else {}),
        **unusual(shape),
        "layers": depth(config),
        "d_model": shape.d_model,
        "vocabulary": {
            **({"source": source} if two_sided else {}),
            "target": target,
            "known": known,
        },
        "parameters": {
            "total": cost.parameters,
            "embeddings": cost.embeddings,
            "encoder": cost.encoder,
            "decoder": cost.decoder,
            "solver": cost.solver,
        },
        "multiply_adds": {
            "per_source_token": cost.per_source_token,
            "per_target_token": cost.per_target_token,
        },
        "training": {
            "checkpoints": len(checkpoints),
            "last_step": checkpoints[-1].step if checkpoints else 0,
            "best_step": checkpoints[-1].best_step if checkpoints else 0,
            "finished": run.is_finished,
        },
    }


def _vocabularies(run: Run) -> tuple[int, int, bool, str]:
    """The sizes of the vocabularies, whether they are shared, and where that is known from."""
    if run.is_prepared:
        known = run.tokenizers
        return len(known.source), len(known.target), known.shared, "from the run"
    data = run.config.data
    size = expected_vocabulary(data)
    return size, size, data.shared_vocab, "assumed; the text is not prepared yet"


@contextmanager
def _writer(path: Path | None) -> Generator[TextIO]:
    """Standard output, or a file that is written atomically."""
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    with (
        atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as out,
    ):
        yield out


def _warn(sentence: str) -> None:
    print(f"kutta: {sentence}", file=sys.stderr)

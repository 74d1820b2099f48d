"""`kutta evaluate`: the test sets of a run."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

from kutta.commands.progress import progress, remark
from kutta.config import SearchOptions
from kutta.errors import InputError
from kutta.runs import Run, choose_device
from kutta.training.validate import word_perplexity
from kutta.translate.evaluate import EvalSet, Evaluation, eval_sets, evaluate_set
from kutta.translate.translator import Translator

Evaluate = Callable[[EvalSet, Callable[[int], None] | None], Evaluation]


def evaluate_run(
    folder: Path,
    tests: Sequence[str] = (),
    data_dir: str | None = None,
    device: str = "auto",
    checkpoint: str | None = None,
    **search: Unpack[SearchOptions],
) -> list[Evaluation]:
    """Score a run on test sets: BLEU and chrF of translations, perplexity of a language model."""
    return list(evaluations(folder, tests, data_dir, device, checkpoint, **search))


def evaluations(
    folder: Path,
    tests: Sequence[str] = (),
    data_dir: str | None = None,
    device: str = "auto",
    checkpoint: str | None = None,
    **search: Unpack[SearchOptions],
) -> Iterator[Evaluation]:
    """Score one test set after the other; on Ctrl-C, KeyboardInterrupt says which are done."""
    run = Run.load(folder, checkpoint)
    sets = eval_sets(run, tests, data_dir)
    evaluate = _by_perplexity(run, device, search) if run.config.language_model else None
    evaluate = evaluate or _by_translation(run, device, search)
    done: list[str] = []
    try:
        for test in sets:
            with progress(test.name, partial(len, test.pairs)) as on_lines:
                result = evaluate(test, on_lines)
            yield result
            done.append(test.name)
    except KeyboardInterrupt:
        missing = [test.name for test in sets if test.name not in done]
        raise KeyboardInterrupt(
            f"interrupted; scored: {', '.join(done) or 'none'}; not scored: {', '.join(missing)}"
        ) from None


def _by_translation(run: Run, device: str, search: SearchOptions) -> Evaluate:
    translator = Translator.load(run.folder, device, warn=remark)
    return lambda test, on_lines: evaluate_set(run, translator, test, on_lines, **search)


def _by_perplexity(run: Run, device: str, search: SearchOptions) -> Evaluate:
    """The perplexity per word of a language model."""
    for name, value in search.items():
        if value is not None:
            raise InputError(
                f"--{name.replace('_', '-')} has no effect on {run.path}, a language model, which "
                "is scored by its perplexity without a search; remove it."
            )
    place = choose_device(device)
    model, tokenizer = run.load_model().to(place), run.tokenizers.target

    def evaluate(test: EvalSet, on_lines: Callable[[int], None] | None) -> Evaluation:
        texts = [target for _, target in test.pairs]
        score = word_perplexity(model, tokenizer, texts, run.config.train, place)
        return Evaluation(test.name, len(test.pairs), [score], None, run.signature)

    return evaluate

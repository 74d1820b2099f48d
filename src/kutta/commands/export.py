"""`kutta export`: an exported model, and what its precision costs."""

from collections.abc import Iterator
from pathlib import Path

from kutta.errors import InputError
from kutta.export.export import export_run
from kutta.metrics.texts import valid_score
from kutta.runs import Run
from kutta.runtime import open_export
from kutta.translate.translator import Translator


def export_model(
    run: Run, folder: Path, precision: str, score: bool = True, shortlist: bool = False
) -> Iterator[str]:
    """Write an exported model; yields sentences about it."""
    export_run(run, folder, precision, shortlist)
    if not score or run.config.language_model or (precision == "fp32" and not shortlist):
        return
    name, pairs = _text(run)
    if not pairs:
        yield "The run has no test or validation text, so the loss of quality was not measured."
        return
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    scores = [
        valid_score(translator.translate(sources), references, run.config.data)
        for translator in (Translator.load(run.folder, "cpu"), Translator.load(folder))
    ]
    before, after = scores
    if shortlist:
        yield _length(folder, sources)
    yield (
        f"{before.name} of {name}, {len(pairs):,} sentences: {before.value:.2f} in fp32, "
        f"{after.value:.2f} exported ({after.value - before.value:+.2f})"
    )


def _length(folder: Path, lines: list[str]) -> str:
    """How many tokens lines list."""
    exported = open_export(folder)
    lists, encode = exported.shortlist, exported.tokenizers.source.encode
    assert lists is not None
    sizes = [len(lists.ids([encode(line)])) for line in lines]
    return (
        f"A sentence lists {sum(sizes) / len(sizes):,.0f} of {exported.facts.vocabulary:,} tokens."
    )


def _text(run: Run) -> tuple[str, list[tuple[str, str]]]:
    """The name and the pairs of the first test set that can be read, or of the validation set."""
    for test in run.config.data.test:
        try:
            return test, list(run.texts.test(test))
        except InputError:  # the corpus is not on this machine
            continue
    try:
        return "the validation set", list(run.texts.valid())
    except InputError:
        return "", []

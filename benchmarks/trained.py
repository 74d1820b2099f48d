"""BLEU of a trained run with every program that can translate with its weights."""

from collections.abc import Callable

from decoders.decoder import Model
from environments import Absent
from figures import Row
from translating import Entrant, Process

from kutta.config import DataConfig
from kutta.data.tokenizer import EOS, SPECIALS, Tokenizer
from kutta.runs import Run
from kutta.translate.evaluate import EvalSet, eval_sets, score_texts
from kutta.translate.hypothesis import one_line

BEAM = 4
PATIENCE = 3600.0  # seconds for a test set
ENDS = SPECIALS[EOS]


def scores_of(
    model: Model, entrants: list[Entrant], say: Callable[[str], None]
) -> tuple[list[Row], dict[str, str]]:
    """The scores of each way of decoding, and why others have none."""
    rows: list[Row] = []
    absent: dict[str, str] = {}
    for entrant in entrants:
        try:
            rows += [row_of(entrant, model.run, test) for test in eval_sets(model.run)]
        except Absent as reason:
            absent[str(entrant.way)] = str(reason)
            say(f"{entrant.way}: absent, {reason}")
            continue
        say(f"{entrant.way}: {rows[-1]['scores']}")
    return rows, absent


def row_of(entrant: Entrant, run: Run, test: EvalSet) -> Row:
    """Translate a test set; Kutta is given its lines, others its tokens."""
    way, known = entrant.way, run.tokenizers
    lines = [source for source, _ in test.pairs]
    as_text = way.program.startswith("Kutta")
    sentences = [[line] for line in lines] if as_text else subwords_of(lines, known.source)
    process = Process(entrant.job, sentences, PATIENCE)
    try:
        process.ask({"task": "translate", "beam": BEAM}, PATIENCE)  # the first does not count
        answer = process.ask({"task": "translate", "beam": BEAM}, PATIENCE)
    finally:
        process.end()
    found = [[token for token in one if token != ENDS] for one in answer["sentences"]]
    texts = list(map(" ".join, found)) if as_text else texts_of(found, known.target)
    return {
        "program": way.program,
        "version": entrant.version,
        "precision": way.precision,
        "option": way.option,
        "workers": way.workers,
        "test": test.name,
        "sentences_per_second": round(len(lines) / answer["seconds"], 1),
        "scores": scored(texts, test, run.config.data),
    }


def scored(found: list[str], test: EvalSet, data: DataConfig) -> dict[str, float]:
    scores = score_texts(found, test.references(data), data, test.raw)
    return {score.name: round(score.value, 2) for score in scores}


def subwords_of(lines: list[str], tokenizer: Tokenizer) -> list[list[str]]:
    """The tokens of lines, as a program without Kutta's tokenizer is given them."""
    tokens = tokenizer.tokens
    return [[tokens[i] for i in tokenizer.encode(line)] for line in lines]


def texts_of(sentences: list[list[str]], tokenizer: Tokenizer) -> list[str]:
    """The texts of translations into tokens."""
    ids = {token: i for i, token in enumerate(tokenizer.tokens)}
    return [one_line([ids[token] for token in one], tokenizer) for one in sentences]

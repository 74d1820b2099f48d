"""From text to text: the only way translations are made, for commands, servers and scores."""

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from kutta.config import DecodeConfig
from kutta.data.tokenizer import EOS, PAD, Tokenizers
from kutta.errors import InputError
from kutta.model import TranslationModel
from kutta.runs import Run, choose_device
from kutta.translate.hypothesis import Hypothesis
from kutta.translate.loading import load_translation_models
from kutta.translate.sampling import Sampling, sample
from kutta.translate.scorer import scorer_of
from kutta.translate.search import beam_search

LONGEST_SOURCE = 1024  # tokens; more of a line is read only by a model trained with more
CHUNK = 4096  # lines read before the first is translated: enough to sort them by length

Scored = tuple[str, float]


class Options(TypedDict, total=False):
    """What differs from the decode settings of the run.

    `chunk` is how many lines a stream reads before it answers; 1 answers each line at once.
    """

    beam: int | None
    length_penalty: float | None
    min_length: int | None
    max_length: int | None
    no_repeat_ngram: int | None
    sampling: Sampling | None
    chunk: int


@dataclass(frozen=True)
class _Plan:
    """Options, complete and checked."""

    beam: int
    length_penalty: float
    min_length: int
    max_length: int | None
    no_repeat_ngram: int
    n_best: int
    sampling: Sampling | None
    chunk: int


@dataclass(frozen=True)
class _Line:
    """An encoded line: its number in the input, from 0, and its ids without marks."""

    number: int
    ids: list[int]


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)


class Translator:
    """Translates lines of text with one model, or with the average of several.

    Exactly one line comes out for each that goes in, in the same order; empty lines stay empty.
    Lines are grouped by length to be fast, which changes nothing but the last digits of scores.
    Of a line only the first `max_source` tokens are read, as the model was trained; where that is
    0, a line above LONGEST_SOURCE tokens is cut there, and `warn` gets a sentence about it.
    """

    def __init__(
        self,
        models: TranslationModel | Sequence[TranslationModel],
        tokenizers: Tokenizers,
        config: DecodeConfig,
        device: str | torch.device = "auto",
        warn: Callable[[str], None] = _warn,
        max_source: int = 0,
    ) -> None:
        models = [models] if isinstance(models, TranslationModel) else list(models)
        if not models:
            raise InputError("There is no model to translate with; give at least one.")
        self.device = choose_device(device)
        self.models = [model.to(self.device) for model in models]
        self.tokenizers = tokenizers
        self.config = config
        self.warn = warn
        self.max_source = max_source

    @classmethod
    def load(
        cls,
        runs: str | Path | Sequence[str | Path],
        device: str | torch.device = "auto",
        warn: Callable[[str], None] = _warn,
    ) -> Self:
        """Load a run or one of its checkpoints; several of them are translated with together."""
        folders = [runs] if isinstance(runs, str | Path) else list(runs)
        loaded = [Run.load(folder) for folder in folders]
        models = load_translation_models(loaded)
        first = loaded[0]
        config = first.config
        return cls(models, first.tokenizers, config.decode, device, warn, config.data.max_source)

    def translate(self, lines: Iterable[str], **options: Unpack[Options]) -> list[str]:
        """The best translation of each line."""
        return list(self.translate_stream(lines, **options))

    def translate_stream(self, lines: Iterable[str], **options: Unpack[Options]) -> Iterator[str]:
        """The best translation of each line, for input of any size: memory stays bounded."""
        return (best[0][0] for best in self.hypotheses_stream(lines, **options))

    def hypotheses(
        self, lines: Iterable[str], n_best: int = 1, **options: Unpack[Options]
    ) -> list[list[Scored]]:
        """Up to `n_best` translations of each line with their scores, best first."""
        return list(self.hypotheses_stream(lines, n_best, **options))

    def hypotheses_stream(
        self, lines: Iterable[str], n_best: int = 1, **options: Unpack[Options]
    ) -> Iterator[list[Scored]]:
        """As `hypotheses`, for input of any size."""
        if isinstance(lines, str):
            raise InputError("Give a list of lines to translate, not one string.")
        return self._stream(lines, self._plan(n_best, **options))

    def _plan(
        self,
        n_best: int,
        beam: int | None = None,
        length_penalty: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        no_repeat_ngram: int | None = None,
        sampling: Sampling | None = None,
        chunk: int = CHUNK,
    ) -> _Plan:
        decode = self.config
        plan = _Plan(
            beam=decode.beam if beam is None else beam,
            length_penalty=decode.length_penalty if length_penalty is None else length_penalty,
            min_length=decode.min_length if min_length is None else min_length,
            max_length=(decode.max_length if max_length is None else max_length) or None,
            no_repeat_ngram=decode.no_repeat_ngram if no_repeat_ngram is None else no_repeat_ngram,
            n_best=n_best,
            sampling=sampling,
            chunk=chunk,
        )
        _check(plan)
        return plan

    def _stream(self, lines: Iterable[str], plan: _Plan) -> Iterator[list[Scored]]:
        encoded = (self._encode(number, text) for number, text in enumerate(lines))
        while chunk := list(islice(encoded, plan.chunk)):
            yield from self._translate(chunk, plan)

    def _encode(self, number: int, text: str) -> _Line:
        # Half of a surrogate pair is no character, and no tokenizer takes it.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids = self.tokenizers.source.encode(text)
        if not self.max_source and len(ids) > LONGEST_SOURCE:
            self.warn(
                f"Line {number + 1} has {len(ids):,} tokens; only the first {LONGEST_SOURCE:,} "
                "are translated."
            )
        return _Line(number, ids[: self.max_source or LONGEST_SOURCE])

    def _translate(self, chunk: list[_Line], plan: _Plan) -> list[list[Scored]]:
        """Translate the lines of a chunk, in its order."""
        found: dict[int, list[Scored]] = {}
        for batch in _batches([line for line in chunk if line.ids], self.config.batch_tokens):
            with _evaluating(self.models):
                results = self._search(batch, plan)
            for line, hypotheses in zip(batch, results, strict=True):
                found[line.number] = [(self._text(h), h.score) for h in hypotheses]
        return [found.get(line.number, [("", 0.0)]) for line in chunk]

    def _search(self, batch: list[_Line], plan: _Plan) -> list[list[Hypothesis]]:
        source = _pad([line.ids for line in batch]).to(self.device)
        scorer = scorer_of(self.models)
        rules = plan.min_length, plan.no_repeat_ngram
        if plan.sampling is not None:
            streams = [line.number for line in batch]
            drawn = sample(scorer, source, plan.sampling, plan.max_length, streams, *rules)
            return [[hypothesis] for hypothesis in drawn]
        return beam_search(
            scorer, source, plan.beam, plan.length_penalty, plan.max_length, plan.n_best, *rules
        )

    def _text(self, hypothesis: Hypothesis) -> str:
        """Its text on one line: whatever a reader may take for the end of a line is a space."""
        return " ".join(self.tokenizers.target.decode(hypothesis.tokens).splitlines()).strip()


@contextmanager
def _evaluating(models: Sequence[TranslationModel]) -> Generator[None]:
    """Dropout off meanwhile; a model that is being trained goes on training afterwards."""
    training = [model.training for model in models]
    try:
        for model in models:
            model.eval()
        yield
    finally:
        for model, mode in zip(models, training, strict=True):
            model.train(mode)


def _check(plan: _Plan) -> None:
    for wrong, sentence in (
        (plan.beam < 1, f"beam = {plan.beam} is no beam; it must be at least 1"),
        (plan.n_best < 1, f"n_best = {plan.n_best} asks for nothing; it must be at least 1"),
        (
            plan.sampling is None and plan.n_best > plan.beam,
            f"n_best = {plan.n_best} is more than a beam of {plan.beam} finds; raise the beam",
        ),
        (
            plan.sampling is not None and plan.n_best > 1,
            f"n_best = {plan.n_best} does not go with sampling, which draws one translation; "
            "give the line several times",
        ),
        (
            not abs(plan.length_penalty) <= 10.0,
            f"length_penalty = {plan.length_penalty} is out of range; usual are 0 to 2",
        ),
        (
            plan.max_length is not None and plan.max_length < 1,
            f"max_length = {plan.max_length} leaves no room; it must be at least 1, or 0 for the "
            "default",
        ),
        (plan.min_length < 0, f"min_length = {plan.min_length} is negative; 0 is no minimum"),
        (
            plan.max_length is not None and plan.min_length > plan.max_length,
            f"min_length = {plan.min_length} is more than max_length = {plan.max_length}; give "
            "both so that they fit",
        ),
        (
            plan.no_repeat_ngram < 0,
            f"no_repeat_ngram = {plan.no_repeat_ngram} is negative; 0 lets everything repeat",
        ),
        (plan.chunk < 1, f"chunk = {plan.chunk} reads no line; it must be at least 1"),
    ):
        if wrong:
            raise InputError(f"{sentence}.")


def _batches(lines: list[_Line], batch_tokens: int) -> Iterator[list[_Line]]:
    """Lines of like length together: rows x (longest + end mark) <= batch_tokens, or one row."""
    batch: list[_Line] = []
    for line in sorted(lines, key=lambda line: -len(line.ids)):
        # The longest come first, so the first of a batch is its width.
        if batch and (len(batch) + 1) * (len(batch[0].ids) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(line)
    if batch:
        yield batch


def _pad(rows: list[list[int]]) -> Tensor:
    """ids -> (B, S) with EOS behind each row and PAD behind that."""
    tensors = [torch.tensor([*row, EOS]) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=PAD)

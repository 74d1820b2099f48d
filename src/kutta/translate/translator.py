"""The Translator: text to text, used by all commands."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from pydantic import Field, InstanceOf

from kutta.config import DecodeConfig, Sampling, SearchOptions, Section
from kutta.config.mistakes import check_names
from kutta.config.signature import spelled_out
from kutta.data.tokenizer import EOS, Tokenizers
from kutta.errors import InputError
from kutta.translate.batches import SEGMENT, Source, batches, count_lines, within
from kutta.translate.exported import ExportedModel, check_device
from kutta.translate.hypothesis import Hypothesis, one_line
from kutta.translate.loading import exports_to_load, load_exports, load_runs
from kutta.translate.sampling import sample
from kutta.translate.scorer import Ensemble
from kutta.translate.segments import Scored, join, longest_source, split
from kutta.translate.workers import Arrangement, search_together

if TYPE_CHECKING:
    import torch

    from kutta.model import TranslationModel

    Model = TranslationModel | ExportedModel

CHUNK = 4096  # lines that are read and sorted by length before they are translated
FIRST_CHUNK = 64  # of a stream, so that its first results come soon; each next one is doubled


class Options(SearchOptions, total=False):
    """The options of a call; missing or None is the setting of the run.

    `sampling` samples translations instead of searching for the best. `chunk` is how many lines are
    read before they are translated: by default CHUNK, in a stream FIRST_CHUNK and then up to CHUNK;
    1 translates line by line. `on_lines` is called with the number of lines that are done.
    """

    sampling: Sampling | None
    chunk: int | None
    on_lines: Callable[[int], None] | None


class _Request(Section):
    """The validated options of a call."""

    decode: DecodeConfig
    n_best: int = Field(ge=1)
    sampling: InstanceOf[Sampling] | None = None
    chunk: int | None = Field(default=None, ge=1)
    on_lines: Callable[[int], None] | None = None

    def mistakes(self) -> Iterator[str]:
        if self.sampling is None and self.n_best > self.decode.beam:
            yield f"n_best = {self.n_best} is larger than beam = {self.decode.beam}; raise beam"
        if self.sampling is not None and self.n_best > 1:
            yield (
                f"n_best = {self.n_best} is not supported with sampling, which gives one "
                "translation; repeat the line instead"
            )


class Translator:
    """Translates lines of text with one model or an ensemble.

    There is one output line for each input line, in the same order; empty lines stay empty. Lines
    are batched by length for speed, which changes only the last digits of scores. Lines are
    truncated to `max_source` tokens, as in training. If that is 0, lines much longer than those of
    training, of at most `max_length` tokens, are translated in segments, with a message to `warn`.
    """

    def __init__(
        self,
        models: "Model | Sequence[Model]",
        tokenizers: Tokenizers,
        config: DecodeConfig,
        device: "str | torch.device" = "auto",
        warn: Callable[[str], None] = warnings.warn,
        max_source: int = 0,
        max_length: int = 0,
        workers: int | None = None,
    ) -> None:
        models = list(models) if isinstance(models, Sequence) else [models]
        if not models:
            raise InputError("There is no model to translate with; give at least one.")
        self.models, self.device = models, "cpu"
        exported = [model for model in models if isinstance(model, ExportedModel)]
        if workers is not None and (workers < 1 or not exported):
            raise InputError(
                f"workers = {workers} is not valid; it is the number of workers of an exported "
                "model, at least 1 (torch uses several cores by itself)."
            )
        self.precision = exported[0].exported.facts.precision if exported else ""  # of the runtime
        self.workers, self.arrangement = workers, None if exported else Arrangement(1, 1)
        if exported:
            check_device(device)
            self.scorer = exported[0] if len(exported) == 1 else Ensemble(exported)
        else:
            from kutta.translate.pytorch import on_device, scorer_of

            self.models, self.device = on_device(cast(Any, models), device)
            self.scorer = scorer_of(cast(Any, self.models))
        self.tokenizers = tokenizers
        self.config = config
        self.warn = warn
        self.max_source = max_source
        self.longest = longest_source(max_length)
        self.languages = "", ""  # of source and target, as a run names them

    @classmethod
    def load(
        cls,
        runs: str | Path | Sequence[str | Path],
        device: "str | torch.device" = "auto",
        warn: Callable[[str], None] = warnings.warn,
        workers: int | None = None,
    ) -> Self:
        """Load a run, one of its checkpoints or an exported model; several form an ensemble.

        Names of models in the box or of the hub will do. An exported model runs on a CPU without
        torch; torch runs it on a GPU, and in an ensemble with runs. `workers` is how many threads
        of an exported model search at once, each its own sentences; None chooses.
        """
        folders = [runs] if isinstance(runs, str | Path) else runs
        if not isinstance(cast(object, folders), Sequence) or not all(
            isinstance(cast(object, folder), str | Path) for folder in folders
        ):
            raise InputError(f"Give the path of a run, or a list of paths, not {runs!r}.")
        exported = exports_to_load(folders, device)
        models, first = load_exports(exported) if exported else load_runs(folders)
        config, data = first.config, first.config.data
        limits = data.max_source, data.max_length
        translator = cls(models, first.tokenizers, config.decode, device, warn, *limits, workers)
        translator.languages = data.source, data.target
        return translator

    def __repr__(self) -> str:
        models = "1 model" if len(self.models) == 1 else f"{len(self.models)} models"
        return f"Translator({models} on {self.device}, {self.config!r})"

    @spelled_out(Options.__annotations__)
    def translate(self, lines: Iterable[str], **options: Unpack[Options]) -> list[str]:
        """The best translation of each line."""
        _check_single(options)
        return [best[0][0] for best in self._answer(lines, 1, _at_once(options))]

    @spelled_out(Options.__annotations__)
    def translate_stream(self, lines: Iterable[str], **options: Unpack[Options]) -> Iterator[str]:
        """The best translation of each line as a stream, in bounded memory."""
        _check_single(options)
        return (best[0][0] for best in self._answer(lines, 1, options))

    @spelled_out(Options.__annotations__)
    def hypotheses(
        self, lines: Iterable[str], n_best: int = 1, **options: Unpack[Options]
    ) -> list[list[Scored]]:
        """Up to `n_best` translations of each line with their scores, best first."""
        return list(self._answer(lines, n_best, _at_once(options)))

    @spelled_out(Options.__annotations__)
    def hypotheses_stream(
        self, lines: Iterable[str], n_best: int = 1, **options: Unpack[Options]
    ) -> Iterator[list[Scored]]:
        """Like `hypotheses`, as a stream in bounded memory."""
        return self._answer(lines, n_best, options)

    def _answer(
        self, lines: Iterable[str], n_best: int, options: Options
    ) -> Iterator[list[Scored]]:
        """Validate the options immediately; translate when the first result is requested."""
        check_names(options, Options.__annotations__)
        if isinstance(lines, str) or not isinstance(cast(object, lines), Iterable):
            raise InputError(f"Give a list of lines to translate, not {_one(lines)}.")
        others: dict[str, Any] = {**options}
        search = {name: others.pop(name, None) for name in SearchOptions.__annotations__}
        decode = self.config.changed(**cast(SearchOptions, search))
        return self._stream(lines, _Request(decode=decode, n_best=n_best, **others))

    def _stream(self, lines: Iterable[str], request: _Request) -> Iterator[list[Scored]]:
        encoded = (self._encode(number, text) for number, text in enumerate(lines))
        size = FIRST_CHUNK
        while chunk := list(within(encoded, request.chunk or size)):
            answers = iter(self._translate(list(chain.from_iterable(chunk)), request))
            for line in chunk:
                found = [(source.joint, next(answers)) for source in line]
                yield join(found, add=request.sampling is not None)
            size = min(2 * size, CHUNK)

    def _encode(self, number: int, text: str) -> list[Source]:
        """A line, in segments if it is too long."""
        if not isinstance(cast(object, text), str):
            raise InputError(f"Line {number + 1} is {_one(text)}, not text; give strings.")
        # Half of a surrogate pair is not a character, and no tokenizer accepts it.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        encode = self.tokenizers.source.encode
        ids = encode(text)
        if self.max_source or len(ids) <= self.longest:
            return [Source(number, ids[: self.max_source or len(ids)])]
        segments = split(text, lambda part: len(encode(part)), self.longest)
        self.warn(
            f"Line {number + 1} has {len(ids):,} tokens; it is translated in {len(segments):,} "
            "segments."
        )
        return [
            Source(number + part * SEGMENT, encode(segment.text), segment.joint)
            for part, segment in enumerate(segments)
        ]

    def _translate(self, chunk: list[Source], request: _Request) -> list[list[Scored]]:
        """Translate the lines of a chunk, in its order."""
        found: dict[int, list[Scored]] = {}
        texts = [line for line in chunk if line.ids]
        if request.on_lines:
            request.on_lines(count_lines(chunk) - count_lines(texts))
        texts.sort(key=lambda line: -len(line.ids))
        for number, hypotheses in self._search(texts, request):
            found[number] = [
                (one_line(h.tokens, self.tokenizers.target), h.score) for h in hypotheses
            ]
            if request.on_lines and number < SEGMENT:
                request.on_lines(1)
        return [found.get(line.number, [("", 0.0)]) for line in chunk]

    def _arrange(self, lines: int) -> int:
        """The number of workers. Once several lines have come, the graphs stay open for them."""
        if self.arrangement is None or (lines > 1 and self.arrangement.threads > 1):
            self.arrangement = Arrangement.of(lines, self.workers)
            for model in self.models:
                cast(ExportedModel, model).open(self.arrangement.threads)
        return self.arrangement.workers

    def _search(
        self, lines: list[Source], request: _Request
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses of lines by number, the longest lines first."""
        decode, sampling, workers = request.decode, request.sampling, self._arrange(len(lines))
        if sampling is None:
            sentences = [(line.number, [*line.ids, EOS]) for line in lines]
            yield from search_together(
                min(workers, len(lines)) or 1, self.scorer, sentences, decode, request.n_best
            )
            return
        for batch in batches(lines, decode):
            sources, numbers = [[*line.ids, EOS] for line in batch], [line.number for line in batch]
            drawn = sample(self.scorer, sources, sampling, decode, numbers)
            yield from ((number, [one]) for number, one in zip(numbers, drawn, strict=True))


def _check_single(options: Mapping[str, object]) -> None:
    """Reject the number of translations where there is one for each line."""
    if "n_best" in options:
        raise InputError(
            "translate gives one translation of each line; use hypotheses(lines, n_best="
            f"{options['n_best']!r}) for several."
        )


def _at_once(options: Options) -> Options:
    """The options where all results are returned together: no small chunks first."""
    return options if options.get("chunk") is not None else {**options, "chunk": CHUNK}


def _one(value: object) -> str:
    """A description of what was given instead of lines."""
    return "one string" if isinstance(value, str) else f"an object of type {type(value).__name__}"

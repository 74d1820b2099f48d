"""The models that are served: which pairs of languages they translate, directly or by a pivot."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from kutta.box import find_run
from kutta.box import models as boxed_models
from kutta.config import CONFIG
from kutta.config.data import language_of
from kutta.documents.placeholders import search_with_values
from kutta.documents.sentences import Fits, is_short
from kutta.errors import InputError
from kutta.parsing import read_json
from kutta.runtime import is_exported
from kutta.server.batching import Batcher, Observe, Results, Scored
from kutta.server.limits import Limits

_PIVOT = "en"  # preferred, as most models have it on one side


class Engine(Protocol):
    """What the server needs of a `kutta.Translator`."""

    @property
    def config(self) -> Any:
        """Its search options; `beam` is used."""
        ...

    def hypotheses(
        self, lines: Iterable[str], n_best: int = 1, *, beam: int | None = None
    ) -> list[list[Scored]]:
        """Up to `n_best` translations of each line with their scores, best first."""
        ...


@dataclass(frozen=True)
class Model:
    """A translator with its languages and its place.

    `fits` says whether a sentence is short enough; `threads` is how many may translate at once.
    """

    name: str
    source: str
    target: str
    engine: Engine
    folder: Path | None = None
    fits: Fits = is_short
    threads: int = 1

    @property
    def pair(self) -> str:
        return f"{self.source}-{self.target}"

    def hypotheses(self, sentences: list[str], n_best: int) -> list[list[Scored]]:
        """Search as the run is set; a wider beam only where more hypotheses are wanted."""
        beam = max(n_best, int(self.engine.config.beam))
        search = partial(self.engine.hypotheses, n_best=n_best, beam=beam)
        return search_with_values(sentences, search)


def load_models(names: Sequence[str], device: str = "auto") -> list[Model]:
    """The models of these folders or names; without any, all models in the box."""
    chosen = list(names) or list(boxed_models())
    if not chosen:
        raise InputError(
            "There are no models in the box; give a run directory or an exported model, such as "
            "`kutta serve runs/mine`, or make a run with `kutta demo`."
        )
    models = [_load(name, device) for name in chosen]
    for number, model in enumerate(models):
        for other in models[:number]:
            if other.pair == model.pair:
                raise InputError(
                    f"{other.name} and {model.name} both translate {model.source} to "
                    f"{model.target}; give one of them."
                )
    return models


def _load(name: str, device: str) -> Model:
    """A run in torch, which uses all cores by itself, or an exported model with a thread for each.

    With one thread a product of an exported model is as fast as with two, also for one sentence.
    """
    from kutta.commands.translate import fits_model  # here, because torch takes a second
    from kutta.translate import Translator
    from kutta.translate.exported import on_cpu
    from kutta.translate.workers import cores

    folder = find_run(name)
    source, target = _languages(folder)
    threads, workers = (cores(), 1) if is_exported(folder) and on_cpu(device) else (1, None)
    translator = Translator.load(folder, device=device, workers=workers)
    translator.translate(["1"])  # opens the graphs, so the folder is not read again
    fits = partial(fits_model, translator)
    return Model(folder.resolve().name, source, target, translator, folder, fits, threads)


def _languages(folder: Path) -> tuple[str, str]:
    """The languages in the config of a run, or of the run of a checkpoint."""
    home = next((at for at in (folder, folder.parent.parent) if (at / CONFIG).is_file()), None)
    if home is None:
        raise InputError(
            f"{folder} is neither a run directory nor an exported model (it has no {CONFIG}); give "
            "one."
        )
    try:
        data: Any = read_json(home / CONFIG)["data"]
        return language_of(data["source"]), language_of(data["target"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{home / CONFIG} does not name two languages as data.source and data.target; give the "
            "directory of a translation model."
        ) from error


@dataclass(frozen=True, eq=False)
class Served:
    """A model with its queue."""

    model: Model
    batcher: Batcher


Route = tuple[Served, ...]  # one model, or two by a pivot


class Models:
    """The models of a server, and the routes between languages. Close it after use."""

    def __init__(
        self, models: Sequence[Model], limits: Limits, observers: Sequence[Observe]
    ) -> None:
        self.served = [
            Served(model, Batcher(model.hypotheses, limits, model.pair, observe, model.threads))
            for model, observe in zip(models, observers, strict=True)
        ]
        self.codes = sorted({code for m in models for code in (m.source, m.target)})
        self._direct = {(one.model.source, one.model.target): one for one in self.served}

    def route(self, source: str, target: str) -> Route | None:
        """The models from one language to another; no model at all if they are the same."""
        if source == target:
            return ()
        if direct := self._direct.get((source, target)):
            return (direct,)
        for pivot in sorted(self.codes, key=lambda code: (code != _PIVOT, code)):
            first, last = self._direct.get((source, pivot)), self._direct.get((pivot, target))
            if first and last:
                return first, last
        return None

    def targets(self, source: str) -> list[str]:
        """The languages that a language can be translated to."""
        return [code for code in self.codes if code != source and self.route(source, code)]

    def close(self) -> None:
        """Finish what is waiting, and end the threads."""
        for one in self.served:
            one.batcher.close()


async def translate(
    route: Route, sentences: Sequence[str], n_best: int = 1
) -> AsyncGenerator[Results]:
    """The hypotheses of sentences over a route, as they are ready.

    A pivot gets the best translation. The second model translates what the first has finished while
    the first goes on.
    """
    if not route:
        yield [(number, [(sentence, 0.0)]) for number, sentence in enumerate(sentences)]
        return
    last = route[-1].batcher
    if len(route) == 1:
        async with aclosing(last.translate(sentences, n_best)) as batches:
            async for results in batches:
                yield results
        return
    async with aclosing(translate(route[:-1], sentences)) as batches:
        async for batch in batches:
            numbers = [number for number, _ in batch]
            halfway = [best[0][0] for _, best in batch]
            async with aclosing(last.translate(halfway, n_best)) as onward:
                async for results in onward:
                    yield [(numbers[number], found) for number, found in results]

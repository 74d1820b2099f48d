"""CTranslate2 behind Kutta's server: serve_ctranslate2.py RUN EXPORT.

The server, its batches and the tokenizers are Kutta's; only the translator differs.
"""

import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ctranslate2

from kutta.export.ctranslate2 import vocabulary
from kutta.runs import Run
from kutta.server.keys import Keys
from kutta.server.limits import Limits
from kutta.server.models import Model
from kutta.server.run import make_server
from kutta.server.service import Service
from kutta.translate.workers import cores


class Engine:
    """What the server needs of a translator."""

    def __init__(self, run: Run, export: str) -> None:
        self.config = run.config.decode
        self.known = run.tokenizers
        self.subwords = vocabulary(self.known.source)
        self.ids = {subword: i for i, subword in enumerate(vocabulary(self.known.target))}
        # As Kutta's runtime: a worker of one thread for each core.
        self.translator = ctranslate2.Translator(export, inter_threads=cores(), intra_threads=1)

    def hypotheses(
        self, lines: Iterable[str], n_best: int = 1, *, beam: int | None = None
    ) -> list[list[tuple[str, float]]]:
        encoded = [self.known.source.encode(line) for line in lines]
        found: Any = self.translator.translate_batch(
            [[self.subwords[i] for i in ids] for ids in encoded],
            beam_size=beam or self.config.beam,
            num_hypotheses=n_best,
            length_penalty=self.config.length_penalty,
            max_decoding_length=2 * max(map(len, encoded)) + 20,
            return_scores=True,
        )
        return [
            [
                (self.known.target.decode([self.ids[subword] for subword in subwords]), score)
                for subwords, score in zip(one.hypotheses, one.scores, strict=True)
            ]
            for one in found
        ]


def main() -> None:
    run = Run.load(Path(sys.argv[1]))
    data = run.config.data
    engine = Engine(run, sys.argv[2])
    model = Model("ctranslate2", data.source, data.target, engine, threads=cores())
    server = make_server(Service.of([model], Limits(), Keys()))
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        server.run([listening])


if __name__ == "__main__":
    main()

"""Translate when asked: a process that holds one program and one model.

run_decode.py PROGRAM FOLDER OPTIONS reads requests from standard input, one JSON object a line, and
answers each with one on standard output. The first is {"sentences": [[token, ...], ...],
"tries": ...}; it is answered when the model is loaded and has translated the first sentence.
`tries` lets a program try several batch sizes. Then

{"task": "throughput", "beam": 4, "length": 25}    -> {"seconds": ..., "tokens": ..., "setting": 32}
{"task": "latency", "beam": 4, "length": 25, ...}  -> {"seconds": [...]}, sentence by sentence
{"task": "translate", "beam": 4}                   -> {"seconds": ..., "sentences": [...]}

It runs in the environment of its program, so it imports nothing else.
"""

import json
import os
import sys
import time
from typing import Any

PENALTY = 0.6  # of lengths, for all
LONGEST = 512  # tokens of a translation whose length is free
BATCHES = (32, 16, 64, 128)  # sentences at once: the first, or of all the fastest

Sentences = list[list[str]]


class Kutta:
    """Kutta's Translator, which reads and writes text: here the tokens are words."""

    settings = (None,)

    def __init__(self, folder: str, options: dict[str, Any]) -> None:
        from kutta import Translator

        self.translator = Translator.load(folder, **options)

    def translate(self, sentences: Sentences, beam: int, length: int, _: Any) -> Sentences:
        lines = [" ".join(sentence) for sentence in sentences]
        # The last of the tokens is the end, which text does not have.
        fixed = {"min_length": length - 1, "max_length": length - 1} if length else {}
        found = self.translator.translate(lines, beam=beam, length_penalty=PENALTY, **fixed)
        return [[*line.split(), "</s>"] for line in found]


class CTranslate2:
    """CTranslate2's Translator."""

    settings = BATCHES

    def __init__(self, folder: str, options: dict[str, Any]) -> None:
        import ctranslate2

        self.translator = ctranslate2.Translator(folder, **options)

    def translate(self, sentences: Sentences, beam: int, length: int, batch: int) -> Sentences:
        fixed = {"min_decoding_length": length} if length else {}
        found = self.translator.translate_batch(
            sentences,
            beam_size=beam,
            length_penalty=PENALTY,
            max_batch_size=batch,
            max_decoding_length=length or LONGEST,
            return_end_token=True,
            suppress_sequences=[["<pad>"], ["<s>"]],
            **fixed,
        )
        return [one.hypotheses[0] for one in found]


class Marian:
    """Marian's Translator. Its models never end by themselves here, see `translate`."""

    settings = (None,)

    def __init__(self, folder: str, options: dict[str, Any]) -> None:
        self.folder, self.threads = folder, options["threads"]
        self.translators: dict[int, Any] = {}

    def translate(self, sentences: Sentences, beam: int, length: int, _: Any) -> Sentences:
        """As many tokens as the longest sentence of a batch has: it knows no other limit."""
        if beam not in self.translators:
            self.translators.clear()  # one copy of the weights at a time
            self.translators[beam] = self.load(beam)
        lines = [" ".join(sentence) for sentence in sentences]
        return [line.split() for line in self.translators[beam].translate(lines)]

    def load(self, beam: int) -> Any:
        import pymarian

        return pymarian.Translator(
            f"--models {self.folder}/model.npz --vocabs {self.folder}/vocab.yml "
            f"{self.folder}/vocab.yml --cpu-threads {self.threads} --beam-size {beam} "
            f"--normalize {PENALTY} --max-length-factor 1 --mini-batch 64 --maxi-batch 100 "
            "--maxi-batch-sort src --workspace 256 --quiet --quiet-translation"
        )


PROGRAMS = {"kutta": Kutta, "ctranslate2": CTranslate2, "marian": Marian}


class Server:
    """Answers requests with one program."""

    def __init__(self, program: Any, sentences: Sentences, tries: bool) -> None:
        self.program, self.sentences = program, sentences
        self.settings = program.settings if tries else program.settings[:1]
        self.chosen: dict[int, Any] = {}  # the fastest setting by beam

    def timed(
        self, sentences: Sentences, beam: int, length: int, setting: Any
    ) -> tuple[float, int]:
        started = time.perf_counter()
        found = self.program.translate(sentences, beam, length, setting)
        return time.perf_counter() - started, sum(map(len, found))

    def setting(self, beam: int, length: int) -> Any:
        """The setting that is fastest, found at the first request, which also warms up."""
        if beam not in self.chosen:
            each = {s: self.timed(self.sentences, beam, length, s) for s in self.settings}
            self.chosen[beam] = min(each, key=lambda setting: each[setting][0])
        return self.chosen[beam]

    def throughput(self, beam: int, length: int) -> dict[str, Any]:
        setting = self.setting(beam, length)
        seconds, tokens = self.timed(self.sentences, beam, length, setting)
        return {"seconds": seconds, "tokens": tokens, "setting": setting}

    def latency(self, beam: int, length: int, sentences: Sentences) -> dict[str, Any]:
        setting = self.settings[0]
        self.timed(sentences[:1], beam, length, setting)
        return {"seconds": [self.timed([one], beam, length, setting)[0] for one in sentences]}

    def translate(self, beam: int) -> dict[str, Any]:
        started = time.perf_counter()
        found = self.program.translate(self.sentences, beam, 0, self.settings[0])
        return {"sentences": found, "seconds": time.perf_counter() - started}


def main() -> None:
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _, name, folder, options = sys.argv
    request = json.loads(sys.stdin.readline())
    program = PROGRAMS[name](folder, json.loads(options))
    program.translate(request["sentences"][:1], 4, 25, program.settings[0])
    server = Server(program, **request)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(server, request.pop("task"))(**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

"""Runs with random weights and sentences of random words, the same for everyone who asks."""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from peers.toolkit import SIZES

from kutta.config import Config
from kutta.data.ragged import Ragged, id_type
from kutta.data.store import write_chunks
from kutta.data.tokenizer import SPECIALS, Pretokenized, Tokenizers
from kutta.model.weights import own_tensors, write_tensors
from kutta.runs import Run

SEED = 1
WORDS = {"tiny": 8_192, "base": 32_768}  # types, with the special ones
LENGTHS = (8, 40)  # tokens of a sentence
MEANINGS, OCCURRENCES, PAIR = 4, 16, 24  # see write_pairs
# The encoder's solver and gamma. RK2 with gamma = 1 costs as much as RK2, and CTranslate2 knows it.
METHODS = {"residual": ("euler", "tableau"), "rk2": ("rk2", "ones"), "rk4": ("rk4", "tableau")}


@dataclass(frozen=True)
class Sentences:
    """Sentences for throughput, and sentences of one length for latency, as tokens."""

    many: list[list[str]]
    single: list[list[str]]


def write_run(folder: Path, size: str, method: str, seed: int = SEED) -> Run:
    """A run that never was trained; all methods have the same weights."""
    chosen = next(one for one in SIZES if one.name == size)
    solver, gamma = METHODS[method]
    model = {
        "d_model": chosen.d_model,
        "ffn": chosen.ffn,
        "heads": chosen.heads,
        "encoder_layers": chosen.layers,
        "decoder_layers": chosen.layers,
        "solver": solver,
        "gamma": gamma,
        "relative_positions": 0,  # Marian has none
    }
    data = {"dir": str(folder), "source": "xx", "target": "yy", "tokenizer": "split"}
    config = Config.parse({"run": str(folder), "data": data, "model": model})
    folder.mkdir(parents=True)
    words = Pretokenized(words_of(size))
    Tokenizers(words, words).save(folder)
    run = Run(folder, config)
    run.write_config()
    torch.manual_seed(seed)
    made = run.build_model()
    with torch.no_grad():
        # A logit of 0 is never the best of thousands, so a translation does not end by itself and
        # has none of the marks. Marian begins with a zero vector in the place of <s>.
        made.target_embedding.tokens.weight[: len(SPECIALS)] = 0.0
    write_tensors(own_tensors(made), run.final_weights)
    write_pairs(run, WORDS[size])
    return run


def write_pairs(run: Run, words: int) -> None:
    """A training corpus that a shortlist is learned from: every word has MEANINGS translations.

    Each word is in OCCURRENCES pairs on average. A sentence of 24 random words then lists about
    100 tokens beside the frequent ones, and a batch of 32 sentences some thousands.
    """
    random = np.random.default_rng(SEED)
    first = len(SPECIALS)
    meanings = random.integers(first, words, (words, MEANINGS))
    source = random.integers(first, words, (words * OCCURRENCES // PAIR, PAIR))
    target = np.take_along_axis(
        meanings[source], random.integers(0, MEANINGS, (*source.shape, 1)), axis=2
    )[:, :, 0]
    target = random.permuted(target, axis=1)
    sides = [
        Ragged(side.ravel().astype(id_type(words)), np.full(len(side), PAIR, np.int32))
        for side in (source, target)
    ]
    run.stores.mkdir(exist_ok=True)
    write_chunks(run.stores / "train.arrow", [(sides[0], sides[1])], words)


def words_of(size: str) -> list[str]:
    return [f"w{number}" for number in range(WORDS[size] - len(SPECIALS))]


def sentences_of(size: str, many: int, single: int, length: int, seed: int = SEED) -> Sentences:
    """Random sentences of 8 to 40 tokens, and `single` ones of one length."""
    words, draw = words_of(size), random.Random(seed)
    lengths = [draw.randint(*LENGTHS) for _ in range(many)]
    return Sentences(
        [draw.choices(words, k=n) for n in lengths],
        [draw.choices(words, k=length) for _ in range(single)],
    )

"""Whether the training text supports its BPE vocabulary: rare subwords are learned badly."""

from collections.abc import Iterator

import numpy as np

from kutta.data.store import Store
from kutta.data.tokenizer import BPE, SPECIALS, Tokenizers

_FIRST = len(SPECIALS) + 256  # special tokens and bytes come before the subwords
_RARE = 10  # a subword is rare if it occurs less often
# Half of them are rare at 16,000 subwords for the 29,000 pairs of Multi30k, and at 8,000 for 20,000
# pairs of Tatoeba.
_SHARE = 0.5
_TOKENS_PER_PIECE, _SMALLEST = 100, 500  # of a vocabulary that is suggested instead


def vocabulary_warnings(store: Store, tokenizers: Tokenizers, vocab_size: int) -> Iterator[str]:
    """A sentence for each BPE vocabulary that is larger than the text supports."""
    known = {"source": tokenizers.source, "target": tokenizers.target}
    sides = [(0, 1)] if tokenizers.shared else [(0,), (1,)]
    for side, tokenizer in zip(sides, known.values(), strict=False):
        if not isinstance(tokenizer, BPE) or len(tokenizer) <= _FIRST:
            continue
        asked = f"data.vocab_size = {vocab_size} is more than the training text supports"
        if len(tokenizer) < vocab_size:
            yield f"{asked}: it has only {len(tokenizer):,} subwords; lower it."
            continue
        rare, tokens = _rare(store, side, len(tokenizer))
        fitting = max(_SMALLEST, tokens // _TOKENS_PER_PIECE // 100 * 100)
        if rare > _SHARE and fitting < vocab_size:
            name = "" if len(side) == 2 else f"{[*known][side[0]]} "
            yield (
                f"{asked}: {100 * rare:.0f}% of the {name}subwords occur fewer than {_RARE} times; "
                f"lower it, e.g. to {fitting}."
            )


def _rare(store: Store, sides: tuple[int, ...], size: int) -> tuple[float, int]:
    """The share of rare subwords, and the number of tokens; reads no more than it has to."""
    counts, rare = np.zeros(size, np.int64), 1.0
    for group in range(store.row_groups):
        for side in sides:
            counts += np.bincount(store.tokens(group)[side], minlength=size)
        rare = float((counts[_FIRST:] < _RARE).mean())
        if rare <= _SHARE:
            break
    return rare, int(counts.sum())

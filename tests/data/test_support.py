"""Which vocabulary a text supports."""

import random
from pathlib import Path

import numpy as np
import pytest

from kutta.data import store as store_module
from kutta.data.ragged import Ragged
from kutta.data.store import Store, write_chunks
from kutta.data.support import vocabulary_warnings
from kutta.data.tokenizer import BPE, Pretokenized, Tokenizers

WORDS = [a + b + c for a in "bdfgklmnpr" for b in "aeiou" for c in "bdfgklmnpr"]  # 500


def lines(times: int, words: list[str] = WORDS) -> list[str]:
    """Each word this many times, in random order, ten in a line."""
    drawn = words * times
    random.Random(1).shuffle(drawn)
    return [" ".join(drawn[i : i + 10]) for i in range(0, len(drawn), 10)]


def stored(path: Path, source: list[list[int]], target: list[list[int]], size: int) -> Store:
    both = [[np.array(row, np.uint16) for row in side] for side in (source, target)]
    rows = [Ragged(np.concatenate(r), np.array([*map(len, r)], np.int32)) for r in both]
    write_chunks(path, [(rows[0], rows[1])], size)
    return Store.open(path)


def sentences(path: Path, text: list[str], size: int, shared: bool = True) -> list[str]:
    """The warnings about a vocabulary that was learned from both sides, the target in capitals."""
    other = [line.upper() for line in text]
    source = BPE.learn(iter([*text, *other] if shared else text), size)
    target = source if shared else BPE.learn(iter(other), size)
    store = stored(path, [*map(source.encode, text)], [*map(target.encode, other)], size)
    return [*vocabulary_warnings(store, Tokenizers(source, target), size)]


def test_subwords_that_are_frequent_enough_are_supported(tmp_path: Path) -> None:
    assert sentences(tmp_path / "a", lines(20), 800) == []


def test_subwords_that_are_mostly_rare_are_not(tmp_path: Path) -> None:
    """1,000 words, each three times: most subwords of 1,200 are whole words."""
    (told,) = sentences(tmp_path / "a", lines(3), 1200)  # 3,000 words
    assert told.startswith("data.vocab_size = 1200 is more than the training text supports: ")
    assert "% of the subwords occur fewer than 10 times; lower it, e.g. to 500." in told
    share = int(told.split(": ")[1].split("%")[0])
    assert 50 < share <= 100


def test_a_piece_for_each_hundred_tokens_is_suggested(tmp_path: Path) -> None:
    """Two of the words are most of the text: 60,000 words a side, and few of the others."""
    (told,) = sentences(tmp_path / "a", lines(3) + lines(30_000, WORDS[:2]), 1300)
    assert told.endswith("lower it, e.g. to 1200.")


def test_fewer_subwords_than_asked_for_are_told(tmp_path: Path) -> None:
    (told,) = sentences(tmp_path / "a", lines(20), 8000)
    assert "is more than the training text supports: it has only 1," in told


def test_each_side_is_told_of_its_own_vocabulary(tmp_path: Path) -> None:
    told = sentences(tmp_path / "a", lines(3), 700, shared=False)
    assert ["source subwords" in told[0], "target subwords" in told[1]] == [True, True]


def test_a_small_vocabulary_and_split_text_are_not_told(tmp_path: Path) -> None:
    assert sentences(tmp_path / "a", lines(2, WORDS[:90]), 400) == []
    words = Pretokenized(["once"])
    store = stored(tmp_path / "b", [[4]], [[4]], 5)
    assert [*vocabulary_warnings(store, Tokenizers(words, words), 8000)] == []


def test_no_more_is_read_than_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "ROWS", 200)
    read: list[int] = []
    real = Store.tokens

    def tokens(self: Store, group: int) -> object:
        read.append(group)
        return real(self, group)

    monkeypatch.setattr(Store, "tokens", tokens)
    assert sentences(tmp_path / "a", lines(100), 800) == []
    assert 0 < max(read) + 1 < Store.open(tmp_path / "a").row_groups == 25

"""Encoding chunks: the cache changes nothing, and rows come back unchanged."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.data import encode as module
from kutta.data.corpus import LineChunk
from kutta.data.encode import CachedTokenizer, Encoded, Limits, Tally, encoder, word_counter
from kutta.data.tokenizer import BPE, Pretokenized, Tokenizers
from tests.data.writing import lists, split_of

TEXT = ["the old man walks along the river", "größere häuser stehen näher am wasser"] * 4
WORD = st.one_of(
    st.sampled_from(["the", "old", "▁", "a▁b", "wasser", "x" * 99]),
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=4),
)
TEXTS = st.lists(st.lists(WORD, max_size=6).map(" ".join), max_size=6)


@pytest.fixture(scope="module")
def bpe() -> BPE:
    return BPE.learn(TEXT, 330)


@pytest.mark.parametrize("size", [0, 12, module.CACHED])
@given(chunks=st.lists(TEXTS, max_size=4))
@settings(deadline=None)
def test_a_cached_tokenizer_encodes_as_the_tokenizer_does(bpe, size, chunks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CACHED", size)
        for tokenizer in (bpe, split_of(TEXT)):
            cached = CachedTokenizer(tokenizer, np.uint16)
            for texts in chunks:
                assert lists(cached.encode(texts)) == [tokenizer.encode(text) for text in texts]


def test_what_is_remembered_is_bounded(bpe, monkeypatch):
    monkeypatch.setattr(module, "CACHED", 50)
    cached = CachedTokenizer(bpe, np.uint16)
    for number in range(100):
        cached.encode([f"{number}word{n} {'z' * 99}{n}" for n in range(10)])
        assert len(cached._words) <= 50
        assert max(map(len, cached._words)) < 99


def test_what_comes_again_is_never_forgotten(bpe, monkeypatch):
    monkeypatch.setattr(module, "CACHED", 20)
    asked = []
    monkeypatch.setattr(
        BPE, "encode_words", lambda self, words: asked.extend(words) or [[5]] * len(words)
    )
    cached = CachedTokenizer(bpe, np.uint16)
    for number in range(50):
        cached.encode([f"often rare{number} once{number}"])
    assert asked.count("often") == 1
    assert len(asked) == 101


def test_a_word_is_encoded_once(bpe, monkeypatch):
    asked = []

    class Counting:
        def encode_words(self, words):
            asked.extend(words)
            return bpe.encode_words(words)

    cached = CachedTokenizer(Counting(), np.uint16)
    for _ in range(3):
        cached.encode(["the old the man", "old man"])
    assert asked == ["the", "old", "man"]


def chunk(*files: str) -> LineChunk:
    return LineChunk(("a", "b")[: len(files)], tuple(file.encode() for file in files), 2)


def test_an_encoded_block_survives_its_way_between_processes(bpe):
    encode = encoder(Tokenizers(bpe, bpe), Limits(9, max_source=5))
    sent = encode(chunk("the old man\n\nthe river\n", "der alte\nx\nam wasser\n"))
    encoded: Encoded = pickle.loads(pickle.dumps(sent))
    rows = [(bpe.encode("the old man")[:5], bpe.encode("der alte"))]
    rows += [(bpe.encode("the river")[:5], bpe.encode("am wasser"))]
    kept = [pair for pair in rows if max(map(len, pair)) <= 9]
    assert [*zip(lists(encoded.source), lists(encoded.target), strict=True)] == kept
    assert encoded.tally.read == 3
    assert encoded.tally.dropped["with an empty source"] == 1


@pytest.mark.parametrize(("words", "kind"), [((1 << 16) - 4, "uint16"), ((1 << 16) - 3, "int32")])
def test_ids_take_two_bytes_where_the_vocabulary_allows_it(words, kind):
    split = Pretokenized([f"w{n}" for n in range(words)])
    encoded = encoder(Tokenizers(split, split), Limits(9))(chunk(f"w{words - 1}\n", "w0\n"))
    assert (encoded.source.ids.dtype, encoded.target.ids.dtype) == (kind, kind)
    assert lists(encoded.source) == [[words + 3]]


def test_separate_vocabularies_take_the_code_of_the_larger():
    small, large = Pretokenized(["a"]), Pretokenized([f"w{n}" for n in range(1 << 16)])
    encoded = encoder(Tokenizers(small, large), Limits(9))(chunk("a\n", "w7\n"))
    assert (encoded.source.ids.dtype, encoded.target.ids.dtype) == ("int32", "int32")


@pytest.mark.parametrize(
    ("sides", "counts"), [((0,), {"a": 2, "b": 1}), ((1,), {"a": 1, "c": 2}), ((0, 1), None)]
)
def test_words_are_counted_on_the_sides_asked_for(sides, counts):
    counted = word_counter(sides)(chunk("a b\na\n", "c\nc a\n"))
    assert dict(counted) == ({"a": 3, "b": 1, "c": 2} if counts is None else counts)


def test_tallies_add_up_with_their_reasons_in_order():
    total, more = Tally(), Tally(5, 2, cut=1)
    more.dropped.update({"z": 2, "a": 1})
    total.add(more)
    more.dropped.update({"b": 1})
    total.add(more)
    assert (total.read, total.kept, total.cut) == (10, 4, 2)
    assert list(total.dropped.items()) == [("z", 4), ("a", 2), ("b", 1)]

"""Tokenizers: text survives the round trip, special ids never come out of text."""

import io
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.data import tokenizer as module
from kutta.data.corpus import read_lines
from kutta.data.tokenizer import BOS, BPE, EOS, PAD, UNK, Pretokenized, Tokenizers
from kutta.errors import InputError
from tests.data.writing import split_of

TEXT = [
    "the old man walks along the river and the young man sees the old river",
    "der alte mann geht am fluss entlang und der junge mann sieht den alten fluss",
    "größere häuser stehen näher am wasser als kleinere häuser",
] * 4
ANY_TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]))
TOKEN = st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1).filter(
    lambda token: token.split() == [token]
)


@pytest.fixture(scope="module")
def bpe() -> BPE:
    return BPE.learn(TEXT, 340)


def test_special_ids_are_the_contract():
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


@given(text=ANY_TEXT)
@settings(deadline=None)
def test_bpe_round_trip_keeps_any_text_up_to_white_space(bpe, text):
    assert bpe.decode(bpe.encode(text)) == " ".join(text.split())


@pytest.mark.parametrize(
    "text", ["▁", "a▁b c", "▁▁ x", "the▁ old", "▅ ⁇ <0x41>", "\U0001d518😀", "\u3000a"]
)
def test_bpe_round_trip_of_characters_that_mean_something_to_sentencepiece(bpe, text):
    assert bpe.decode(bpe.encode(text)) == " ".join(text.split())


@given(text=st.one_of(ANY_TEXT, st.sampled_from(["<pad>", "<s> x </s>", "<unk>", "x<pad>"])))
@settings(deadline=None)
def test_bpe_never_makes_special_ids_of_text(bpe, text):
    ids = bpe.encode(text)
    assert all(EOS < i < len(bpe) for i in ids)


@given(text=ANY_TEXT, more=st.lists(st.sampled_from(["▁", "a▁b", "▅", "⁇", "\u3000", "größer"])))
@settings(deadline=None)
def test_the_ids_of_a_text_are_those_of_its_words(bpe, text, more):
    """What preparing relies on: a word is encoded once and looked up ever after."""
    text = " ".join([text, *more, text])
    for tokenizer in (bpe, split_of(TEXT)):
        words = tokenizer.encode_words(text.split())
        assert [i for ids in words for i in ids] == tokenizer.encode(text)


def test_bpe_really_merges(bpe):
    assert len(bpe.encode("the old river")) < len("the old river") / 2


def test_bpe_decode_leaves_special_ids_out_and_takes_arrays(bpe):
    ids = [BOS, *bpe.encode("der alte fluss"), UNK, EOS, PAD, PAD]
    assert bpe.decode(ids) == "der alte fluss"
    assert bpe.decode(np.array(ids, np.uint16)) == "der alte fluss"


def test_bpe_learning_is_deterministic_also_when_it_samples_sentences(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "SENTENCES_TO_LEARN_FROM", 101)
    lines = [" ".join(f"{n * k % 997}er" for k in range(1, 9)) for n in range(1000)]
    for name in ("a", "b"):
        BPE.learn(lines, 400).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_bpe_learns_from_a_sample_of_a_large_corpus(monkeypatch):
    monkeypatch.setattr(module, "SENTENCES_TO_LEARN_FROM", 101)
    sampled = BPE.learn([chr(0x4E00 + n) for n in range(1000)], 2000)
    # 4 special, 256 bytes, the space, 101 characters, and each of them merged with the space.
    assert len(sampled) <= 4 + 256 + 1 + 2 * 101


def test_a_small_corpus_gives_fewer_subwords_than_asked_for():
    assert 4 + 256 < len(BPE.learn(["hello world"], 50_000)) < 300


def test_a_vocabulary_too_small_for_the_characters_says_how_many_are_needed():
    with pytest.raises(InputError, match=r"data\.vocab_size = 100 is too small.* \d+ entries"):
        BPE.learn(TEXT, 100)


@pytest.mark.parametrize("lines", [[], ["", "  "], ["long " * 2000]])
def test_nothing_to_learn_bpe_from_is_an_error(lines):
    with pytest.raises(InputError, match="Cannot learn a BPE vocabulary"):
        BPE.learn(lines, 300)


def test_an_input_error_inside_the_lines_comes_out_as_it_is():
    def lines():
        yield TEXT[0]
        raise InputError("train.de, line 2 is not valid UTF-8")

    with pytest.raises(InputError, match=r"^train\.de, line 2 is not valid UTF-8$"):
        BPE.learn(lines(), 300)


def test_learning_is_silent(capfd):
    BPE.learn(TEXT, 340)
    assert capfd.readouterr() == ("", "")


@given(seed=st.integers(0, 2**64), dropout=st.floats(0.01, 0.99))
@settings(deadline=None)
def test_bpe_dropout_keeps_the_text_and_depends_on_its_seed_alone(bpe, seed, dropout):
    ids = [bpe.encode(text) for text in [*TEXT[:3], "a▁b 本", ""]]
    sampled = bpe.sample(ids, dropout, seed)
    assert [bpe.decode(row) for row in sampled] == [bpe.decode(row) for row in ids]
    bpe.sample(ids, 0.5, seed + 1)
    assert bpe.sample(ids, dropout, seed) == sampled


@given(text=ANY_TEXT, seed=st.integers(0))
@settings(deadline=None)
def test_bpe_dropout_of_zero_merges_exactly_as_sentencepiece_does(bpe, text, seed):
    for line in (text, *TEXT[:3]):
        assert bpe.sample([bpe.encode(line)], 0.0, seed) == [bpe.encode(line)]


def test_bpe_dropout_splits_finer_the_more_is_dropped(bpe):
    ids = [bpe.encode(text) for text in TEXT]
    sizes = [sum(map(len, bpe.sample(ids, dropout, 1))) for dropout in (0.0, 0.2, 0.6, 1.0)]
    assert sizes[0] == sum(map(len, ids))
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == sum(len("".join(text.split())) + len(text.split()) for text in TEXT)


def test_bpe_dropout_differs_between_seeds_and_is_the_same_in_another_process(bpe, tmp_path):
    ids = [bpe.encode(text) for text in TEXT]
    samples = [bpe.sample(ids, 0.3, seed) for seed in range(5)]
    assert len({str(sample) for sample in samples}) == 5
    bpe.save(tmp_path / "m")
    program = (
        "import sys; from pathlib import Path; from kutta.data.tokenizer import BPE; "
        "print(BPE.load(Path(sys.argv[1])).sample(eval(sys.argv[2]), 0.3, 4))"
    )
    run = [sys.executable, "-c", program, str(tmp_path / "m"), str(ids)]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == (
        f"{samples[4]}\n"
    )


@given(tokens=st.lists(TOKEN, min_size=1))
@settings(deadline=None)
def test_split_gives_every_token_of_its_text_an_id_of_its_own(tokens):
    vocabulary = split_of([" ".join(tokens)])
    assert len(vocabulary) == 4 + len(set(tokens))
    ids = [vocabulary.encode(token) for token in tokens]
    assert all(len(i) == 1 and i[0] > EOS for i in ids)
    assert len({i[0] for i in ids}) == len(set(tokens))


def test_split_orders_by_frequency_then_alphabet():
    vocabulary = split_of(["b c a", "c a", "z c"])
    assert vocabulary.encode("c a b z") == [4, 5, 6, 7]


def test_split_joins_marked_tokens_and_leaves_specials_out():
    vocabulary = split_of(["viel@@ er bü@@ sche ."])
    ids = vocabulary.encode("viel@@ er bü@@ sche .")
    assert vocabulary.decode([BOS, *ids, EOS, PAD]) == "vieler büsche ."
    assert vocabulary.decode(ids[:3]) == "vieler bü"
    assert vocabulary.decode([]) == ""


def test_split_takes_special_names_in_a_text_for_words():
    vocabulary = split_of(["<unk> says <pad> </s>"])
    ids = vocabulary.encode("<unk> <pad> </s> <s>")
    assert ids[3] == UNK
    assert min(ids[:3]) > EOS
    assert vocabulary.decode(ids) == "<unk> <pad> </s>"


def test_split_marks_what_it_does_not_know():
    assert split_of(["a b"]).encode("a x b") == [4, UNK, 5]


def test_split_without_tokens_is_an_error():
    with pytest.raises(InputError, match="no tokens"):
        split_of(["", "  "])


def split() -> Pretokenized:
    return split_of(["a b@@ c", "<pad> a"])


SAVED = {
    "bpe shared": (("tokenizer.model",), True, lambda: BPE.learn(TEXT, 330)),
    "bpe separate": (
        ("tokenizer.source.model", "tokenizer.target.model"),
        False,
        lambda: BPE.learn(TEXT, 330),
    ),
    "split shared": (("vocab.txt",), True, split),
    "split separate": (("vocab.source.txt", "vocab.target.txt"), False, split),
}


@pytest.mark.parametrize("kind", SAVED)
def test_tokenizers_come_back_from_their_folder(tmp_path, kind):
    names, shared, make = SAVED[kind]
    source = make()
    saved = Tokenizers(source, source if shared else make())
    saved.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    loaded = Tokenizers.load(tmp_path)
    assert loaded.shared == shared == (loaded.source is loaded.target)
    for text in ("a c", *TEXT):
        assert loaded.source.encode(text) == saved.source.encode(text)
        assert loaded.target.encode(text) == saved.target.encode(text)


def test_saving_replaces_tokenizers_of_another_kind(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for _, shared, make in SAVED.values():
        source = make()
        Tokenizers(source, source if shared else make()).save(tmp_path)
        loaded = Tokenizers.load(tmp_path)
        assert (type(loaded.source), loaded.shared) == (type(source), shared)
    assert (tmp_path / "config.json").exists()


def test_a_folder_without_tokenizers_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"no tokenizer in .*tokenizer\.model"):
        Tokenizers.load(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a model",
        b"a\nb\nc\nd\ne\n",
        b"\xff\xfe",
        b"<pad>\n<unk>\n<s>\n</s>\n",
        b"<pad>\n<unk>\n<s>\n</s>\na b\n",
        b"<pad>\n<unk>\n<s>\n</s>\na\na\n",
    ],
)
@pytest.mark.parametrize("name", ["tokenizer.model", "vocab.txt"])
def test_damaged_tokenizers_are_an_error(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        Tokenizers.load(tmp_path)


def test_a_truncated_model_is_an_error(tmp_path, bpe):
    path = tmp_path / "tokenizer.model"
    bpe.save(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"tokenizer\.model is damaged or not a"):
        Tokenizers.load(tmp_path)


def test_half_of_a_separate_pair_is_an_error(tmp_path):
    Tokenizers(split(), split()).save(tmp_path)
    (tmp_path / "vocab.target.txt").unlink()
    with pytest.raises(InputError, match=r"vocab\.target\.txt"):
        Tokenizers.load(tmp_path)


def test_a_model_of_other_special_ids_is_refused(tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, model_type="bpe", vocab_size=60
    )
    (tmp_path / "tokenizer.model").write_bytes(model.getvalue())
    with pytest.raises(InputError, match="damaged or not a Kutta tokenizer"):
        Tokenizers.load(tmp_path)


def test_dropout_of_a_pair_splits_both_sides_and_keeps_the_text(bpe):
    resample = Tokenizers(bpe, bpe).dropout(0.4)
    pairs = [(bpe.encode(TEXT[0]), bpe.encode(TEXT[0])) for _ in range(20)]
    sampled = resample(pairs, 7)
    assert sampled == resample(pairs, 7)
    others = resample(pairs, 8)
    for side in (0, 1):
        assert [pair[side] for pair in sampled] != [pair[side] for pair in others]
    assert all(bpe.decode(side) == TEXT[0] for pair in sampled for side in pair)
    assert any(source != target for source, target in sampled)


def test_dropout_of_split_text_is_an_error():
    with pytest.raises(InputError, match=r"data\.bpe_dropout"):
        Tokenizers(split(), split()).dropout(0.1)


def test_real_text_survives_bpe(shared_data):
    lines = list(read_lines(shared_data / "wmt" / "newstest2014.en-de.de.gz"))
    tokenizer = BPE.learn(lines[:500], 1000)
    encoded = [tokenizer.encode(line) for line in lines]
    assert [tokenizer.decode(row) for row in encoded] == [" ".join(x.split()) for x in lines]
    assert tokenizer.sample(encoded[:500], 0.0, 1) == encoded[:500]

"""Batches: every pair once an epoch, within the budget, a function of seed and number alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.data.batches import BatchStream, batches_in_order, collate
from kutta.data.store import Store
from kutta.data.tokenizer import BOS, BPE, EOS, PAD, Tokenizers
from kutta.errors import InputError
from tests.data.writing import split_of, write_store

LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=80)
SEEDS = st.integers(0, 2**40)


def fresh_store(folder, lengths) -> Store:
    """Pair n: its number + 10 as every source token, its number + 500 as every target token."""
    pairs = (([n + 10] * s, [n + 500] * t) for n, (s, t) in enumerate(lengths))
    write_store(folder / "s.arrow", pairs, 1000)
    return Store.open(folder / "s.arrow")


def same(one, other) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(other, name))
        for name in ("source", "target_in", "target_out")
    )


@pytest.fixture
def store(tmp_path) -> Store:
    random = np.random.default_rng(5)
    return fresh_store(tmp_path, random.integers(0, 30, (300, 2)).tolist())


def test_collate_by_hand():
    batch = collate([([7, 8, 9], [5]), ([6], [4, 5, 6])])
    assert batch.source.tolist() == [[7, 8, 9, EOS], [6, EOS, PAD, PAD]]
    assert batch.target_in.tolist() == [[BOS, 5, PAD, PAD], [BOS, 4, 5, 6]]
    assert batch.target_out.tolist() == [[5, EOS, PAD, PAD], [4, 5, 6, EOS]]
    assert batch.tokens == 6
    assert {t.dtype for t in (batch.source, batch.target_in, batch.target_out)} == {torch.int64}


def test_collate_of_empty_sides_keeps_their_marks():
    batch = collate([([], [])])
    assert (batch.source.tolist(), batch.target_in.tolist()) == ([[EOS]], [[BOS]])
    assert (batch.target_out.tolist(), batch.tokens) == ([[EOS]], 1)


def test_a_stretched_batch_has_the_same_tokens_and_more_padding():
    """Widths 4 and 10 with their end marks become 8 and 12."""
    pairs = [([7, 8, 9], [5]), ([6], [4] * 9)]
    close, wide = collate(pairs), collate(pairs, 100)
    assert (wide.source.shape, wide.target_in.shape) == ((2, 8), (2, 12))
    assert wide.tokens == close.tokens
    for name in ("source", "target_in", "target_out"):
        narrow, padded = getattr(close, name), getattr(wide, name)
        assert torch.equal(padded[:, : narrow.shape[1]], narrow)
        assert (padded[:, narrow.shape[1] :] == PAD).all()


def test_a_batch_moves_as_a_whole():
    moved = collate([([7], [5, 6])]).to("meta")
    kinds = {t.device.type for t in (moved.source, moved.target_in, moved.target_out)}
    assert (kinds, moved.tokens) == ({"meta"}, 3)


@given(seed=SEEDS, world=st.integers(1, 5), accumulate=st.integers(1, 6), first=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_ranks_that_share_an_update_read_what_one_process_reads(
    tmp_path_factory, seed, world, accumulate, first
):
    """Rank r of w takes the micro-batches of an update whose number leaves r when divided by w."""
    lengths = np.random.default_rng(seed).integers(0, 20, (60, 2)).tolist()
    store = fresh_store(tmp_path_factory.mktemp("ranks"), lengths)
    alone = BatchStream(store, 64, seed)
    ranks = [BatchStream(store, 64, seed) for _ in range(world)]
    for update in range(first, first + 3):
        numbers = range(update * accumulate, (update + 1) * accumulate)
        shares = [[n for n in numbers if n % world == rank] for rank in range(world)]
        taken = {n: ranks[rank].take(n) for rank, share in enumerate(shares) for n in share}
        assert sorted(taken) == list(numbers)
        assert all(same(taken[n], alone.take(n)) for n in numbers)


def test_one_epoch_of_all_ranks_holds_every_pair_once(store):
    stream = BatchStream(store, 128, 3)
    world, total = 3, stream.batches_per_epoch
    shares = [[n for n in range(total) if n % world == rank] for rank in range(world)]
    seen = np.concatenate([stream.indices(n) for share in shares for n in share])
    assert sorted(seen.tolist()) == list(range(len(store)))


def test_a_stream_resumed_anywhere_continues_as_if_never_stopped(store):
    stream = BatchStream(store, 128, 3)
    whole = [stream.take(n) for n in range(3 * stream.batches_per_epoch)]
    for position in (0, 1, stream.batches_per_epoch - 1, stream.batches_per_epoch + 7):
        resumed = BatchStream(store, 128, 3)
        assert all(same(whole[n], resumed.take(n)) for n in range(position, len(whole)))


def test_a_store_of_many_windows_is_walked_once_an_epoch(tmp_path, monkeypatch):
    """Row groups of 7 pairs, windows of 2; pair n is known by its tokens."""
    monkeypatch.setattr("kutta.data.store.ROWS", 7)
    monkeypatch.setattr("kutta.data.batches.WINDOW", 2)
    lengths = np.random.default_rng(4).integers(1, 9, (100, 2)).tolist()
    stream = BatchStream(fresh_store(tmp_path, lengths), 40, 3)
    size = stream.batches_per_epoch
    for epoch in (0, 1):
        batches = [stream.take(n) for n in range(epoch * size, (epoch + 1) * size)]
        assert sorted(int(n) - 10 for b in batches for n in b.source[:, 0]) == list(range(100))
        assert sum(b.tokens for b in batches) == sum(target + 1 for _, target in lengths)


def test_numbers_run_across_epochs(store):
    stream = BatchStream(store, 128, 3)
    size = stream.batches_per_epoch
    assert [stream.epoch_of(n) for n in (0, size - 1, size, 5 * size + 2)] == [
        (0, 0),
        (0, size - 1),
        (1, 0),
        (5, 2),
    ]
    for epoch in (1, 0, 2):
        numbers = range(epoch * size, (epoch + 1) * size)
        seen = np.concatenate([stream.indices(n) for n in numbers])
        assert sorted(seen.tolist()) == list(range(len(store)))


def test_a_stream_of_few_shapes(store):
    """Lengths below 30: widths 8 to 32, the shorter side one step below the longer at most."""
    stream = BatchStream(store, 256, 3, few_shapes=True)
    batches = [stream.take(n) for n in range(stream.batches_per_epoch)]
    steps = [8, 12, 16, 20, 24, 32]
    shapes = [(*b.source.shape, b.target_in.shape[1]) for b in batches]
    for rows, s, t in shapes:
        assert abs(steps.index(s) - steps.index(t)) <= 1
        assert rows * max(s, t) <= 256
    assert sum(rows != 256 // max(s, t) for rows, s, t in shapes) <= 1
    assert sum(len(stream.indices(n)) for n in range(len(batches))) == len(store)


@pytest.mark.parametrize("few_shapes", [False, True])
def test_the_largest_batch_has_the_most_cells_of_all(store, few_shapes):
    stream = BatchStream(store, 128, 3, few_shapes=few_shapes)
    cells = [b.source.numel() + b.target_in.numel() for b in map(stream.take, range(200))]
    largest = stream.largest()
    assert largest.source.numel() + largest.target_in.numel() == max(cells)
    assert same(largest, stream.largest())


def test_the_largest_batch_is_resampled_too(store):
    stream = BatchStream(store, 128, 3, resample=lambda pairs, _: [([42], [43] * 50)] * len(pairs))
    assert stream.largest().target_out.shape[1] == 51


def test_resampling_beyond_the_budget_still_gives_a_batch(store):
    """Re-segmented text may be longer than planned; it is padded to what it needs."""
    grown = [([42] * 300, [43] * 20)]
    stream = BatchStream(store, 128, 3, lambda pairs, _: grown * len(pairs), few_shapes=True)
    batch = stream.take(0)
    assert (batch.source.shape[1], batch.target_in.shape[1]) == (301, 128)


def test_rows_of_a_batch_are_the_pairs_of_its_numbers(store):
    stream = BatchStream(store, 128, 3)
    batch, indices = stream.take(4), stream.indices(4)
    for row, n in enumerate(indices.tolist()):
        source, target = store[n]
        assert batch.source[row, : len(source) + 1].tolist() == [n + 10] * len(source) + [EOS]
        assert batch.target_in[row, : len(target) + 1].tolist() == [BOS] + [n + 500] * len(target)


def test_resampling_gets_the_pairs_and_a_seed_that_belongs_to_the_number(store):
    calls = []

    def resample(pairs, seed):
        calls.append((len(pairs), seed))
        return [([42], [43, 44])] * len(pairs)

    stream = BatchStream(store, 128, 3, resample=resample)
    batch = stream.take(4)
    assert batch.source.tolist() == [[42, EOS]] * len(stream.indices(4))
    stream.take(5)
    BatchStream(store, 128, 3, resample=resample).take(4)
    assert calls[0] == calls[2]
    assert calls[0][1] != calls[1][1]
    BatchStream(store, 128, 4, resample=resample).take(4)
    assert calls[3][1] != calls[0][1], "and to the seed of the run"


def test_bpe_dropout_in_the_stream_is_the_same_after_a_resume(tmp_path):
    lines = ["the old man walks along the river", "der alte mann geht am fluss entlang"] * 20
    bpe = BPE.learn(lines, 320)
    write_store(tmp_path / "s", ((bpe.encode(x), bpe.encode(x)) for x in lines), len(bpe))
    store, resample = Store.open(tmp_path / "s"), Tokenizers(bpe, bpe).dropout(0.3)
    whole = [BatchStream(store, 200, 1, resample=resample).take(n).source for n in range(9)]
    resumed = BatchStream(store, 200, 1, resample=resample)
    assert all(torch.equal(whole[n], resumed.take(n).source) for n in (6, 7, 8))


def test_an_empty_store_is_an_error(tmp_path):
    write_store(tmp_path / "s", [], 100)
    with pytest.raises(InputError, match="empty"):
        BatchStream(Store.open(tmp_path / "s"), 100, 1)


@given(lengths=LENGTHS)
@settings(max_examples=30, deadline=None)
def test_validation_walks_every_pair_once_from_long_to_short(tmp_path_factory, lengths):
    store = fresh_store(tmp_path_factory.mktemp("valid"), lengths)
    walked = list(batches_in_order(store, 64))
    assert sorted(int(n) for indices, _ in walked for n in indices) == list(range(len(lengths)))
    for indices, batch in walked:
        assert batch.source.shape[0] == len(indices)
        assert max(batch.source.numel(), batch.target_out.numel()) <= 64
    longest = [max(lengths[n]) for indices, _ in walked for n in indices]
    assert longest == sorted(longest, reverse=True)
    again = [indices.tolist() for indices, _ in batches_in_order(store, 64)]
    assert again == [indices.tolist() for indices, _ in walked]


def test_a_list_of_pairs_is_walked_like_a_store(store):
    pairs = [(list(map(int, s)), list(map(int, t))) for s, t in (store[n] for n in range(300))]
    in_memory = batches_in_order(pairs, 64)
    for (numbers, batch), (others, other) in zip(
        batches_in_order(store, 64), in_memory, strict=True
    ):
        assert numbers.tolist() == others.tolist()
        assert same(batch, other)
    assert list(batches_in_order([], 64)) == []


def test_a_validation_pair_beyond_the_budget_is_named():
    with pytest.raises(InputError, match=r"Pair 2 has 51 .*batch_tokens = 40"):
        next(batches_in_order([([5], [5]), ([5], [5] * 50)], 40))


def test_split_vocabulary_store_and_batches_fit(tmp_path):
    """The straight line in small: text in, the same text out of a batch."""
    lines = [("a b@@ c", "x y"), ("c", "y z@@ z"), ("a a", "x")]
    vocabulary = split_of(side for pair in lines for side in pair)
    pairs = ((vocabulary.encode(s), vocabulary.encode(t)) for s, t in lines)
    write_store(tmp_path / "s", pairs, len(vocabulary))
    stream = BatchStream(Store.open(tmp_path / "s"), 1000, 1)
    batch, indices = stream.take(0), stream.indices(0)
    for row, n in enumerate(indices):
        assert vocabulary.decode(batch.source[row].tolist()) == lines[n][0].replace("@@ ", "")
        assert vocabulary.decode(batch.target_out[row].tolist()) == lines[n][1].replace("@@ ", "")

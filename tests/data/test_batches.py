"""Batches: every pair once an epoch, within the budget, a function of seed and number alone."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.data.batches import BatchStream, batches_in_order, collate, plan_epoch
from kutta.data.corpus import read_pairs
from kutta.data.store import Store, write_store
from kutta.data.tokenizer import BOS, BPE, EOS, PAD, Split, Tokenizers
from kutta.errors import InputError

LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=80)
SEEDS = st.integers(0, 2**40)


def arrays(lengths):
    source, target = np.array(lengths, np.int32).T
    return source, target


def fresh_store(folder, lengths) -> Store:
    """Pair n: its number + 10 as every source token, its number + 500 as every target token."""
    pairs = (([n + 10] * s, [n + 500] * t) for n, (s, t) in enumerate(lengths))
    write_store(folder / "s.arrow", pairs, 1000)
    return Store.open(folder / "s.arrow")


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


def test_a_batch_moves_as_a_whole():
    moved = collate([([7], [5, 6])]).to("meta")
    kinds = {t.device.type for t in (moved.source, moved.target_in, moved.target_out)}
    assert (kinds, moved.tokens) == ({"meta"}, 3)


@given(lengths=LENGTHS, seed=SEEDS, epoch=st.integers(0, 1000), spare=st.integers(0, 200))
@settings(deadline=None)
def test_each_pair_is_exactly_once_in_an_epoch_and_every_batch_fits(lengths, seed, epoch, spare):
    source, target = arrays(lengths)
    widest = np.maximum(source, target) + 1
    budget = int(widest.max()) + spare
    plan = plan_epoch(source, target, budget, seed, epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    assert all(len(batch) * widest[batch].max() <= budget for batch in plan)


@given(lengths=LENGTHS, seed=SEEDS, epochs=st.tuples(st.integers(0, 99), st.integers(0, 99)))
@settings(deadline=None)
def test_the_number_of_batches_is_the_same_in_every_epoch(lengths, seed, epochs):
    one, other = (len(plan_epoch(*arrays(lengths), 100, seed, epoch)) for epoch in epochs)
    assert one == other


def test_plans_are_repeatable_and_differ_by_seed_and_epoch():
    lengths = arrays(np.random.default_rng(1).integers(1, 20, (500, 2)).tolist())

    def plan(seed, epoch):
        return [batch.tolist() for batch in plan_epoch(*lengths, 200, seed, epoch)]

    assert plan(1, 0) == plan(1, 0)
    assert len({str(plan(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4
    contents = [{tuple(sorted(batch)) for batch in plan(1, epoch)} for epoch in (0, 1)]
    assert contents[0] != contents[1], "equally long pairs meet anew in every epoch"
    widths = [max(np.maximum(*lengths)[batch]) for batch in plan(1, 0)]
    assert widths != sorted(widths), "batches are not walked from short to long"


def test_batches_are_filled_as_far_as_the_budget_goes():
    lengths = np.full(1000, 9, np.int32)
    plan = plan_epoch(lengths, lengths, 100, 1, 0)
    assert [len(batch) for batch in plan] == [10] * 100


def test_a_pair_beyond_the_budget_names_it_and_the_limits():
    source, target = np.array([3, 50, 4], np.int32), np.array([3, 4, 5], np.int32)
    with pytest.raises(InputError, match=r"Pair 2 has 51 .*batch_tokens = 40.*data\.max_length"):
        plan_epoch(source, target, 40, 1, 0)
    assert len(plan_epoch(source, target, 51, 1, 0)) >= 1


def test_lengths_beyond_16_bits_are_sorted_too():
    source = np.array([70_000, 1, 70_000, 2], np.int32)
    target = np.array([1, 70_001, 2, 70_001], np.int32)
    plan = plan_epoch(source, target, 70_002, 1, 0)
    assert sorted(int(i) for batch in plan for i in batch) == [0, 1, 2, 3]


@given(lengths=LENGTHS, seed=SEEDS, world=st.integers(1, 5), data=st.data())
@settings(max_examples=30, deadline=None)
def test_shards_of_all_ranks_are_disjoint_complete_and_resumable(
    tmp_path_factory, lengths, seed, world, data
):
    store = fresh_store(tmp_path_factory.mktemp("shards"), lengths)
    stream = BatchStream(store, 64, seed)
    first = data.draw(st.integers(0, 2 * stream.batches_per_epoch))
    shares = [
        list(islice(BatchStream(store, 64, seed, position=first).shard(rank, world), 4))
        for rank in range(world)
    ]
    mine = range(first, first + 4 * world)
    by_number = {n: stream.take(n) for n in mine}
    for rank, share in enumerate(shares):
        numbers = [n for n in mine if n % world == rank]
        for number, batch in zip(numbers, share, strict=True):
            assert torch.equal(batch.source, by_number[number].source)
            assert torch.equal(batch.target_out, by_number[number].target_out)


def test_one_epoch_of_all_ranks_holds_every_pair_once(store):
    stream = BatchStream(store, 128, 3)
    world, total = 3, stream.batches_per_epoch
    shares = [[n for n in range(total) if n % world == rank] for rank in range(world)]
    seen = np.concatenate([stream.indices(n) for share in shares for n in share])
    assert sorted(seen.tolist()) == list(range(len(store)))


def test_a_stream_taken_up_anywhere_goes_on_as_if_never_stopped(store):
    stream = BatchStream(store, 128, 3)
    whole = [stream.take(n) for n in range(3 * stream.batches_per_epoch)]
    for position in (0, 1, stream.batches_per_epoch - 1, stream.batches_per_epoch + 7):
        resumed = BatchStream(store, 128, 3, position=position).shard()
        for uninterrupted, batch in zip(whole[position:], resumed, strict=False):
            assert torch.equal(uninterrupted.source, batch.source)
            assert torch.equal(uninterrupted.target_in, batch.target_in)
            assert torch.equal(uninterrupted.target_out, batch.target_out)


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


def test_bpe_dropout_in_the_stream_is_the_same_after_a_resume(tmp_path):
    lines = ["the old man walks along the river", "der alte mann geht am fluss entlang"] * 20
    bpe = BPE.learn(lines, 320)
    write_store(tmp_path / "s", ((bpe.encode(x), bpe.encode(x)) for x in lines), len(bpe))
    store, resample = Store.open(tmp_path / "s"), Tokenizers(bpe, bpe).dropout(0.3)
    whole = [BatchStream(store, 200, 1, resample=resample).take(n).source for n in range(9)]
    resumed = BatchStream(store, 200, 1, position=6, resample=resample).shard()
    assert all(torch.equal(a, b.source) for a, b in zip(whole[6:], resumed, strict=False))


def test_an_empty_store_is_an_error(tmp_path):
    write_store(tmp_path / "s", [], 100)
    with pytest.raises(InputError, match="empty"):
        BatchStream(Store.open(tmp_path / "s"), 100, 1)


@given(lengths=LENGTHS)
@settings(max_examples=30, deadline=None)
def test_validation_walks_every_pair_once_in_order_of_length(tmp_path_factory, lengths):
    store = fresh_store(tmp_path_factory.mktemp("valid"), lengths)
    walked = list(batches_in_order(store, 64))
    assert sorted(int(n) for indices, _ in walked for n in indices) == list(range(len(lengths)))
    for indices, batch in walked:
        assert batch.source.shape[0] == len(indices)
        assert max(batch.source.numel(), batch.target_out.numel()) <= 64
    targets = [lengths[n][1] for indices, _ in walked for n in indices]
    assert targets == sorted(targets)
    again = [indices.tolist() for indices, _ in batches_in_order(store, 64)]
    assert again == [indices.tolist() for indices, _ in walked]


@given(seed=SEEDS)
@settings(max_examples=5, deadline=None)
def test_padding_on_natural_lengths_is_small(seed):
    """Sides that vary together, as in translation: at most 5% of a padded epoch is padding."""
    random = np.random.default_rng(seed)
    source = random.poisson(13, 20_000).astype(np.int32) + 1
    target = np.maximum(1, source + random.integers(-3, 4, 20_000)).astype(np.int32)
    assert padding(source, target, plan_epoch(source, target, 4096, seed, 0)) <= 0.05


def test_padding_on_multi30k_is_at_most_five_percent(shared_data):
    pairs = read_pairs(shared_data / "multi30k-bpe" / "en-de", "train", "en", "de")
    lengths = arrays([(len(source.split()), len(target.split())) for source, target in pairs])
    assert padding(*lengths, plan_epoch(*lengths, 4096, 1, 0)) <= 0.05


def padding(source, target, plan) -> float:
    """The share of padded positions, both sides together, end marks counted as tokens."""
    padded = sum(len(b) * (int(source[b].max()) + int(target[b].max()) + 2) for b in plan)
    return 1 - (int(source.sum()) + int(target.sum()) + 2 * len(source)) / padded


def test_split_vocabulary_store_and_batches_meet(tmp_path):
    """The straight line in small: text in, the same text out of a batch."""
    lines = [("a b@@ c", "x y"), ("c", "y z@@ z"), ("a a", "x")]
    vocabulary = Split.learn(side for pair in lines for side in pair)
    pairs = ((vocabulary.encode(s), vocabulary.encode(t)) for s, t in lines)
    write_store(tmp_path / "s", pairs, len(vocabulary))
    stream = BatchStream(Store.open(tmp_path / "s"), 1000, 1)
    batch, indices = stream.take(0), stream.indices(0)
    for row, n in enumerate(indices):
        assert vocabulary.decode(batch.source[row].tolist()) == lines[n][0].replace("@@ ", "")
        assert vocabulary.decode(batch.target_out[row].tolist()) == lines[n][1].replace("@@ ", "")

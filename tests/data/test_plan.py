"""Plans: every pair once an epoch, within the budget, little padding, a function of numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.data import batches as module
from kutta.data.batches import BatchStream, few_lengths, longest_first, plan_epoch
from kutta.errors import InputError
from tests.texts import read_pairs

LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=80)
SEEDS = st.integers(0, 2**40)
BUDGETS = (512, 1024, 2048, 4096, 8192)


def arrays(lengths):
    source, target = np.array(lengths, np.int32).T
    return source, target


class InRowGroups:
    """Pairs of these lengths in row groups of `rows`, as in a store."""

    def __init__(self, lengths, rows):
        self.pairs, self.rows = np.array(lengths, np.int32), rows
        self.row_groups = -(-len(self.pairs) // rows)

    def __len__(self):
        return len(self.pairs)

    def gather(self, indices):
        return [([7] * source, [7] * target) for source, target in self.pairs[indices]]

    def numbers(self, groups):
        whole = np.arange(len(self.pairs))
        return np.concatenate([whole[b * self.rows : (b + 1) * self.rows] for b in groups])

    def lengths(self, groups):
        source, target = self.pairs[self.numbers(groups)].T
        return source, target


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 3)


def padding(source, target, plan) -> float:
    """The share of padded positions, both sides together, end marks counted as tokens."""
    padded = sum(len(b) * (int(source[b].max()) + int(target[b].max()) + 2) for b in plan)
    return 1 - (int(source.sum()) + int(target.sum()) + 2 * len(source)) / padded


# ---- one epoch ------------------------------------------------------------------------------


@given(lengths=LENGTHS, seed=SEEDS, epoch=st.integers(0, 1000), spare=st.integers(0, 200))
@settings(deadline=None)
def test_each_pair_is_exactly_once_in_an_epoch_and_every_batch_fits(lengths, seed, epoch, spare):
    source, target = arrays(lengths)
    widest = np.maximum(source, target) + 1
    budget = int(widest.max()) + spare
    plan = plan_epoch(source, target, budget, seed, epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    assert all(len(batch) * widest[batch].max() <= budget for batch in plan)


@given(lengths=LENGTHS, seed=SEEDS)
@settings(deadline=None)
def test_all_batches_but_one_are_as_full_as_their_longest_pair_allows(lengths, seed):
    source, target = arrays(lengths)
    widest = np.maximum(source, target) + 1
    plan = plan_epoch(source, target, 100, seed, 0)
    assert sum(len(batch) < 100 // widest[batch].max() for batch in plan) <= 1


@given(lengths=LENGTHS, seed=SEEDS, epochs=st.tuples(st.integers(0, 99), st.integers(0, 99)))
@settings(deadline=None)
def test_the_shapes_of_batches_are_the_same_in_every_epoch(lengths, seed, epochs):
    source, target = arrays(lengths)
    one, other = (
        sorted(
            (len(batch), source[batch].max(), target[batch].max())
            for batch in plan_epoch(source, target, 100, seed, epoch)
        )
        for epoch in epochs
    )
    assert one == other


def test_plans_are_repeatable_and_differ_by_seed_and_epoch():
    lengths = arrays(np.random.default_rng(1).integers(1, 20, (500, 2)).tolist())

    def plan(seed, epoch):
        return [batch.tolist() for batch in plan_epoch(*lengths, 200, seed, epoch)]

    assert plan(1, 0) == plan(1, 0)
    assert len({str(plan(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4
    contents = [{tuple(sorted(batch)) for batch in plan(1, epoch)} for epoch in (0, 1)]
    assert contents[0] != contents[1], "equally long pairs are shuffled in every epoch"
    widths = [max(np.maximum(*lengths)[batch]) for batch in plan(1, 0)]
    assert widths != sorted(widths), "batches are not walked from short to long"
    assert widths != sorted(widths, reverse=True), "nor from long to short"


def test_the_snake_by_hand():
    """Longest side first; of one longest side, the difference rises and falls in turn."""
    lengths = [(2, 2), (3, 1), (1, 3), (3, 3), (2, 0), (0, 2), (4, 4)]
    order = longest_first(*arrays(lengths)).tolist()
    assert [lengths[n] for n in order] == [
        *[(4, 4)],
        *[(1, 3), (3, 3), (3, 1)],
        *[(2, 0), (2, 2), (0, 2)],
    ]


def test_a_pair_beyond_the_budget_names_it_and_the_limits(small_windows):
    lengths = [(3, 3)] * 12 + [(50, 4), (4, 5)]
    for few in (False, True):
        with pytest.raises(InputError, match=r"Pair 13 has 51 .*batch_tokens = 40.*max_length"):
            BatchStream(InRowGroups(lengths, 2), 40, 1, few_shapes=few)
        assert BatchStream(InRowGroups(lengths, 2), 51, 1, few_shapes=few).batches_per_epoch >= 2


def test_lengths_beyond_16_bits_are_sorted_too():
    source = np.array([70_000, 1, 70_000, 2], np.int32)
    target = np.array([1, 70_001, 2, 70_001], np.int32)
    plan = plan_epoch(source, target, 70_002, 1, 0)
    assert sorted(int(i) for batch in plan for i in batch) == [0, 1, 2, 3]


# ---- windows --------------------------------------------------------------------------------


@given(
    lengths=LENGTHS, seed=SEEDS, rows=st.integers(1, 9), few=st.booleans(), epoch=st.integers(0, 9)
)
@settings(deadline=None)
def test_each_pair_is_exactly_once_in_an_epoch_over_windows(lengths, seed, rows, few, epoch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW", 3)
        plan = BatchStream(InRowGroups(lengths, rows), 64, seed, few_shapes=few)
        size = plan.batches_per_epoch
        batches = [plan.indices(number) for number in range(epoch * size, (epoch + 1) * size)]
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    widest = np.max(lengths, axis=1) + 1
    assert all(len(batch) * widest[batch].max() <= 64 for batch in batches)


def test_batches_stay_within_a_window_which_has_blocks_from_everywhere(small_windows):
    """10 row groups in windows of at most 3: 0 4 8, 1 5 9, 2 6 and 3 7."""
    plan = BatchStream(InRowGroups([(3, 3)] * 100, 10), 40, 1)
    visits = []
    for epoch in range(5):
        size = plan.batches_per_epoch
        windows = []
        for number in range(epoch * size, (epoch + 1) * size):
            found = {int(n) // 10 % 4 for n in plan.indices(number)}
            assert len(found) == 1
            windows += found
        changes = [w for i, w in enumerate(windows) if i == 0 or windows[i - 1] != w]
        assert sorted(changes) == [0, 1, 2, 3], "each window is visited once"
        visits.append(changes)
    assert len({str(visit) for visit in visits}) > 1, "in an order drawn for the epoch"


@given(seed=SEEDS, numbers=st.lists(st.integers(0, 200), min_size=1, max_size=20))
@settings(max_examples=20, deadline=None)
def test_a_micro_batch_depends_on_its_number_not_on_what_was_asked_before(seed, numbers):
    lengths = np.random.default_rng(seed).integers(0, 20, (100, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW", 3)
        used = BatchStream(InRowGroups(lengths, 7), 64, seed)
        for number in numbers:
            fresh = BatchStream(InRowGroups(lengths, 7), 64, seed)
            assert used.indices(number).tolist() == fresh.indices(number).tolist()


def test_a_store_of_one_window_is_planned_as_a_whole():
    lengths = np.random.default_rng(2).integers(0, 20, (100, 2))
    plan = BatchStream(InRowGroups(lengths, 7), 64, 5)
    for epoch in (0, 3):
        whole = plan_epoch(*arrays(lengths), 64, 5, epoch)
        size = plan.batches_per_epoch
        assert len(whole) == size
        for index, batch in enumerate(whole):
            assert plan.indices(epoch * size + index).tolist() == batch.tolist()


@pytest.mark.parametrize("few", [False, True])
@given(lengths=LENGTHS, rows=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_the_largest_batch_is_as_large_as_any(few, lengths, rows):
    source, target = arrays(lengths)

    def size(batch):
        longest = source[batch].max(), target[batch].max()
        s, t = (int(side) + 1 for side in (few_lengths(*longest, 64) if few else longest))
        return len(batch) * (s + t), max(s, t)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW", 3)
        plan = BatchStream(InRowGroups(lengths, rows), 64, 1, few_shapes=few)
        sizes = [size(plan.indices(number)) for number in range(2 * plan.batches_per_epoch)]
        (rows, s), (_, t) = (
            side.shape for side in (plan.largest().source, plan.largest().target_in)
        )
        assert (rows * (s + t), max(s, t)) == max(sizes)


# ---- few shapes -----------------------------------------------------------------------------


@given(lengths=LENGTHS, budget=st.integers(41, 300))
@settings(deadline=None)
def test_stretched_lengths_are_few_ordered_and_within_the_budget(lengths, budget):
    source, target = arrays(lengths)
    wide = few_lengths(source, target, budget)
    for stretched, side in zip(wide, (source, target), strict=True):
        assert (stretched >= side).all()
        allowed = {8, 12, 16, 20, 24, 32, 40, 48, budget}
        assert {int(length) + 1 for length in stretched} <= allowed
        assert stretched.max() < budget
    both = few_lengths(source.max(), target.max(), budget)
    assert [int(side) for side in both] == [int(side.max()) for side in wide]


@pytest.mark.parametrize(
    ("lengths", "widths"),
    [
        ((7, 7), (8, 8)),
        ((33, 30), (40, 32)),
        ((1, 30), (24, 32)),  # the shorter side, by itself 8, is one step narrower at most
        ((98, 90), (100, 96)),  # no wider than the budget, 100
        ((99, 300), (100, 301)),  # beyond the budget a length stays as it is
    ],
)
def test_stretched_lengths_by_hand(lengths, widths):
    stretched = few_lengths(*arrays([lengths]), 100)
    assert tuple(int(side[0]) + 1 for side in stretched) == widths


def test_few_shapes_on_newstest_lengths():
    """A number of rows and at most three shapes to a width, at a price of an eighth."""
    source, target = newstest_like(3)
    wide = few_lengths(source, target, 4096)
    plan = plan_epoch(*wide, 4096, 1, 0)
    shapes = [(len(b), int(wide[0][b].max()) + 1, int(wide[1][b].max()) + 1) for b in plan]
    full = {shape for shape in shapes if shape[0] == 4096 // max(shape[1:])}
    assert sum(shape not in full for shape in shapes) <= 1
    assert len(full) <= 3 * len({max(shape[1:]) for shape in full}) <= 42
    cells = sum(rows * (s + t) for rows, s, t in shapes)
    assert 1 - (source.sum() + target.sum() + 2 * len(source)) / cells < 0.125


# ---- padding --------------------------------------------------------------------------------


def newstest_like(seed):
    """Lengths as of news in subwords: about 25 to a side, long tails, sides that go together."""
    random = np.random.default_rng(seed)
    source = random.gamma(3.8, 6.8, 200_000)
    target = source * random.normal(0.93, 0.2, len(source))
    return arrays(np.rint([source, target]).clip(1, 200).T)


@pytest.mark.parametrize("budget", BUDGETS)
def test_padding_on_newstest_like_lengths_is_at_most_five_percent(budget):
    lengths = newstest_like(1)
    assert padding(*lengths, plan_epoch(*lengths, budget, 1, 0)) <= 0.05


@pytest.mark.parametrize("budget", BUDGETS)
def test_padding_on_newstest_is_at_most_five_percent(shared_data, budget):
    """Its 3,003 pairs in about 1.3 subwords a word, drawn 200,000 times."""
    pairs = read_pairs(shared_data / "wmt", "newstest2014.en-de", "en", "de")
    words = np.array([(len(source.split()), len(target.split())) for source, target in pairs])
    random = np.random.default_rng(1)
    drawn = words[random.integers(len(words), size=200_000)]
    lengths = arrays(np.rint(drawn * random.normal(1.3, 0.12, drawn.shape)).clip(1))
    assert padding(*lengths, plan_epoch(*lengths, budget, 1, 0)) <= 0.05


@pytest.mark.parametrize("budget", BUDGETS)
def test_padding_on_multi30k_is_at_most_five_percent(shared_data, budget):
    pairs = read_pairs(shared_data / "multi30k-bpe" / "en-de", "train", "en", "de")
    lengths = arrays([(len(source.split()), len(target.split())) for source, target in pairs])
    assert padding(*lengths, plan_epoch(*lengths, budget, 1, 0)) <= 0.05

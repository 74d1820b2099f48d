"""The token store gives back what was written, or says that the file is not one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.data import store as module
from kutta.data.store import ROWS, Store
from kutta.errors import InputError
from tests.data.writing import write_store

IDS = st.lists(st.integers(0, 65_535), max_size=9)


def as_lists(pairs):
    return [(source.tolist(), target.tolist()) for source, target in pairs]


@pytest.mark.parametrize("vocab_size", [65_536, 65_537])
@given(pairs=st.lists(st.tuples(IDS, IDS), max_size=30))
@settings(deadline=None)
def test_pairs_come_back_as_written(tmp_path_factory, vocab_size, pairs):
    path = tmp_path_factory.mktemp("store") / "train.arrow"
    original = module.ROWS
    module.ROWS = 7  # several record batches without writing 65,536 pairs
    try:
        assert write_store(path, iter(pairs), vocab_size) == len(pairs)
        store = Store.open(path)
        assert len(store) == len(pairs)
        assert as_lists(store[i] for i in range(len(store))) == pairs
        assert [side.tolist() for side in store.lengths()] == [
            [len(source) for source, _ in pairs],
            [len(target) for _, target in pairs],
        ]
    finally:
        module.ROWS = original


@pytest.mark.parametrize(("vocab_size", "width"), [(300, 2), (65_536, 2), (65_537, 4)])
def test_ids_take_as_few_bytes_as_the_vocabulary_allows(tmp_path, vocab_size, width):
    write_store(tmp_path / "s", [([5], [vocab_size - 1])], vocab_size)
    target = Store.open(tmp_path / "s")[0][1]
    assert target.tolist() == [vocab_size - 1]
    assert target.dtype.itemsize == width


def test_more_pairs_than_a_record_batch_holds(tmp_path):
    count = 2 * ROWS + 3
    write_store(tmp_path / "s", (([n % 999], [n % 7] * (n % 3)) for n in range(count)), 1000)
    store = Store.open(tmp_path / "s")
    assert len(store) == count
    for n in (0, ROWS - 1, ROWS, 2 * ROWS - 1, 2 * ROWS, count - 1):
        assert as_lists([store[n]]) == [([n % 999], [n % 7] * (n % 3))]
    assert (store.lengths()[1] == np.arange(count) % 3).all()


@given(count=st.integers(0, 40), data=st.data())
@settings(max_examples=30, deadline=None)
def test_blocks_give_the_numbers_and_lengths_of_their_pairs(tmp_path_factory, count, data):
    path = tmp_path_factory.mktemp("store") / "s"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROWS", 7)
        write_store(path, (([1] * n, [2] * (n % 5)) for n in range(count)), 100)
        store = Store.open(path)
        assert store.row_groups == len(range(0, count, 7))
        groups = data.draw(st.lists(st.integers(0, 9).filter(lambda b: b < store.row_groups)))
        numbers = store.numbers(groups)
        assert numbers.tolist() == [n for b in groups for n in range(count) if n // 7 == b]
        source, target = store.lengths(groups)
        assert source.tolist() == numbers.tolist()
        assert target.tolist() == [n % 5 for n in numbers]


def test_more_tokens_than_a_record_can_address_are_refused():
    nothing = pa.nulls(1 << 30)  # takes no memory
    endless = pa.table({"source": pa.ListArray.from_arrays([0, 1 << 30], nothing)})
    with pytest.raises(InputError, match=r"2 consecutive rows .* lower data\.max_length"):
        module._row_group(pa.concat_tables([endless, endless]))


def test_gather_keeps_the_order_asked_for(tmp_path):
    write_store(tmp_path / "s", (([n], [n, n]) for n in range(10)), 100)
    store = Store.open(tmp_path / "s")
    assert as_lists(store.gather(np.array([7, 2, 2]))) == [([n], [n, n]) for n in (7, 2, 2)]


@pytest.mark.parametrize("index", [-1, 3, 70_000])
def test_a_number_outside_the_store_is_an_index_error(tmp_path, index):
    write_store(tmp_path / "s", [([1], [2])] * 3, 100)
    with pytest.raises(IndexError):
        Store.open(tmp_path / "s")[index]


def test_a_failure_while_writing_leaves_the_former_store_and_nothing_else(tmp_path):
    path = tmp_path / "train.arrow"
    write_store(path, [([1], [2])], 100)

    def failing():
        yield [3], [4]
        raise InputError("train.de, line 2 is not valid UTF-8")

    with pytest.raises(InputError, match="line 2"):
        write_store(path, failing(), 100)
    assert as_lists([Store.open(path)[0]]) == [([1], [2])]
    assert [p.name for p in tmp_path.iterdir()] == ["train.arrow"]


def test_a_full_disk_is_reported_and_the_former_store_kept(tmp_path, monkeypatch):
    path = tmp_path / "train.arrow"
    write_store(path, [([1], [2])], 100)

    class FullDisk:
        def __init__(self, *_):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.arrow, "OSFile", FullDisk)
    with pytest.raises(InputError, match="No space left"):
        write_store(path, [([3], [4])], 100)
    assert as_lists([Store.open(path)[0]]) == [([1], [2])]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_store_is_an_error(tmp_path, share):
    path = tmp_path / "train.arrow"
    write_store(path, (([n], [n]) for n in range(1000)), 1000)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match=r"train\.arrow.*kutta prepare CONFIG --overwrite"):
        Store.open(path)


def test_foreign_files_are_an_error(tmp_path):
    text, other, missing = tmp_path / "t", tmp_path / "o", tmp_path / "m"
    text.write_bytes(b"some text that is long enough to be a file\n" * 100)
    table = pa.table({"source": [[1]], "target": [[2]]})
    with pa.OSFile(str(other), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for path in (text, other):
        with pytest.raises(InputError, match="not a Kutta token store"):
            Store.open(path)
    with pytest.raises(InputError, match="Cannot read"):
        Store.open(missing)


def test_a_store_whose_row_groups_are_not_full_is_refused(tmp_path, monkeypatch):
    """Row i is found by division, so row groups of another size would silently give wrong pairs."""
    monkeypatch.setattr(module, "ROWS", 5)
    write_store(tmp_path / "s", [([1], [2])] * 12, 100)
    assert len(Store.open(tmp_path / "s")) == 12
    monkeypatch.setattr(module, "ROWS", 6)
    with pytest.raises(InputError, match="not a Kutta token store"):
        Store.open(tmp_path / "s")


def test_opening_reads_neither_tokens_nor_lengths(tmp_path):
    """Both stay on disk, so memory does not grow with the number of pairs."""
    row = list(range(100))
    write_store(tmp_path / "s", ((row, row) for _ in range(ROWS)), 1000)
    before = pa.total_allocated_bytes()
    store = Store.open(tmp_path / "s")
    assert pa.total_allocated_bytes() - before < ROWS
    for view in store._sides[0][0]:
        assert not view.flags.owndata
        assert not view.flags.writeable

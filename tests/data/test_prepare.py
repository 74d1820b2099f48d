"""Preparing: what is kept, what is dropped and why, and what lies in the folders afterwards."""

import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from multiprocessing.context import SpawnProcess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.config import DataConfig
from kutta.data import corpus as corpus_module
from kutta.data import prepare as prepare_module
from kutta.data import store as store_module
from kutta.data import workers
from kutta.data.encode import Limits, Tally, keep
from kutta.data.prepare import prepare, read_dictionary
from kutta.data.store import Store
from kutta.data.tokenizer import UNK, Tokenizers
from kutta.errors import InputError
from tests.data.writing import lists, ragged, write_store

PAIRS = [
    ("the old man", "der alte mann"),
    ("the young man walks", "der junge mann geht"),
    ("", "leer"),
    ("empty", " "),
    ("w " * 30, "w w w"),
    ("w w w", "w " * 31),
    ("one", "eins zwei drei vier fünf"),
]


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    write(folder, "train", PAIRS)
    write(folder, "valid", PAIRS)
    return folder


def write(folder, name, pairs):
    for side, language in enumerate(("en", "de")):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def run(corpus, out, **changes):
    given = {name: changes.pop(name) for name in ("tokenizers", "processes") if name in changes}
    return prepare(data_of(corpus, **changes), out, out / "run", **given)


def data_of(corpus, **changes):
    options = {"source": "en", "target": "de", "tokenizer": "split"}
    options |= {"max_length": 20, "max_ratio": 4.0} | changes
    return DataConfig(dir=str(corpus), **options)


def kept_of(pairs, limits, tally):
    """The pairs that `keep` keeps, as lists."""
    sides = (ragged([pair[side] for pair in pairs]) for side in range(2))
    source, target = keep(*sides, limits, tally)
    return list(zip(lists(source), lists(target), strict=True))


def texts(out, part):
    tokenizers, store = Tokenizers.load(out / "run"), Store.open(out / f"{part}.arrow")
    return [
        (tokenizers.source.decode(source), tokenizers.target.decode(target))
        for source, target in (store[n] for n in range(len(store)))
    ]


def test_training_is_filtered_and_told_why(corpus, tmp_path):
    report = run(corpus, tmp_path / "out")
    assert texts(tmp_path / "out", "train") == PAIRS[:2]
    assert report.train.to_dict() == {
        "read": 7,
        "cut": 0,
        "kept": 2,
        "dropped": {
            "with an empty source": 1,
            "with an empty target": 1,
            "with a source too long (> 20 tokens)": 1,
            "with a target too long (> 20 tokens)": 1,
            "with one side longer than 4 x the other": 1,
        },
    }


def test_validation_keeps_all_but_what_is_too_long(corpus, tmp_path):
    report = run(corpus, tmp_path / "out")
    kept = [PAIRS[0], PAIRS[1], PAIRS[2], ("empty", ""), PAIRS[6]]
    assert texts(tmp_path / "out", "valid") == kept
    assert (report.valid.read, report.valid.kept) == (7, 5)


def test_the_summary_reads_as_a_sentence():
    tally = Tally(29_000, 28_995)
    tally.dropped["with an empty source"] = 2
    tally.dropped["with a source too long (> 256 tokens)"] = 3
    assert str(tally) == (
        "29,000 pairs read, 28,995 kept; dropped: "
        "3 with a source too long (> 256 tokens), 2 with an empty source"
    )
    assert str(Tally(5, 5)) == "5 pairs read, 5 kept"
    assert str(Tally(5_000, 5, cut=1_234)) == "5,000 pairs read, 1,234 sources truncated, 5 kept"


@pytest.mark.parametrize("kind", ["bpe", "split"])
def test_long_sources_are_cut_and_not_dropped(corpus, tmp_path, kind):
    out = tmp_path / "out"
    report = run(corpus, out, tokenizer=kind, vocab_size=300, max_source=3, max_length=60)
    whole = run(corpus, tmp_path / "whole", tokenizer=kind, vocab_size=300, max_length=60)
    assert report.train.read == report.valid.read == len(PAIRS)
    assert report.train.cut == report.valid.cut > whole.train.cut == 0
    stores = [Store.open(folder / "valid.arrow") for folder in (out, tmp_path / "whole")]
    for cut, uncut in zip(*(map(s.__getitem__, range(len(s))) for s in stores), strict=True):
        assert cut[0].tolist() == uncut[0].tolist()[:3]
        assert cut[1].tolist() == uncut[1].tolist()


def test_lengths_are_looked_at_after_cutting(corpus, tmp_path):
    """Thirty words against three are too many and out of proportion; the first six are neither."""
    report = run(corpus, tmp_path / "out", max_source=6)
    assert texts(tmp_path / "out", "train") == [*PAIRS[:2], ("w w w w w w", "w w w")]
    assert (report.train.cut, report.train.kept) == (1, 3)
    assert "7 pairs read, 1 sources truncated, 3 kept; dropped: " in str(report.train)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))), st.integers(0, 9))
@settings(deadline=None)
def test_cutting_touches_long_sources_alone(lengths, max_source):
    tally = Tally()
    pairs = [(list(range(s)), list(range(t))) for s, t in lengths]
    cut = kept_of(pairs, Limits(99, max_source=max_source, drop_empty=False), tally)
    longest = max_source or 99
    assert cut == [(list(range(min(s, longest))), list(range(t))) for s, t in lengths]
    assert tally.cut == sum(s > longest for s, _ in lengths)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12))),
    max_length=st.integers(1, 12),
    max_ratio=st.floats(1.0, 6.0),
)
@settings(deadline=None)
def test_the_filter_loses_no_pair_uncounted(lengths, max_length, max_ratio):
    tally = Tally()
    pairs = [([5] * s, [6] * t) for s, t in lengths]
    kept = kept_of(pairs, Limits(max_length, max_ratio), tally)
    fit = [
        (s, t)
        for s, t in lengths
        if 0 < s <= max_length and 0 < t <= max_length and s <= max_ratio * t and t <= max_ratio * s
    ]
    assert [(len(s), len(t)) for s, t in kept] == fit
    assert (tally.read, tally.kept) == (len(lengths), len(fit))
    assert tally.dropped.total() == len(lengths) - len(fit)


def test_limits_are_inclusive():
    tally = Tally()
    pairs = [([5] * 10, [6] * 5), ([5] * 11, [6] * 11), ([5] * 10, [6] * 4)]
    assert kept_of(pairs, Limits(10, 2.0), tally) == pairs[:1]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "split"])
def test_every_kind_of_tokenizer_goes_through(corpus, tmp_path, kind, shared):
    out = tmp_path / "out"
    report = run(corpus, out, tokenizer=kind, shared_vocab=shared, vocab_size=300, max_length=60)
    assert texts(out, "train")[:2] == PAIRS[:2]
    tokenizers = Tokenizers.load(out / "run")
    assert tokenizers.shared == shared == report.to_dict()["shared_vocab"]
    assert report.source_vocab == len(tokenizers.source)
    assert report.target_vocab == len(tokenizers.target)


def test_separate_vocabularies_see_their_own_side_alone(corpus, tmp_path):
    run(corpus, tmp_path / "out", shared_vocab=False)
    tokenizers = Tokenizers.load(tmp_path / "out" / "run")
    assert tokenizers.source.encode("man mann") == [tokenizers.source.encode("man")[0], 1]
    assert tokenizers.target.encode("man mann") == [1, tokenizers.target.encode("mann")[0]]


def test_given_tokenizers_are_used_and_none_is_learned(corpus, tmp_path):
    run(corpus, tmp_path / "one")
    given_ones = Tokenizers.load(tmp_path / "one" / "run")
    write(corpus, "train", [("new words here", "neue wörter hier")])
    report = run(corpus, tmp_path / "two", tokenizers=given_ones)
    assert report.source_vocab == len(given_ones.source)
    assert Store.open(tmp_path / "two" / "train.arrow")[0][0].tolist() == [1, 1, 1]


def test_dictionaries_give_the_vocabulary(corpus, tmp_path):
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("man 9\nmann 8\nthe 7\n")
    report = run(corpus, tmp_path / "out", vocabulary=[str(dictionary)])
    assert (report.source_vocab, report.shared_vocab) == (7, True)
    assert Store.open(tmp_path / "out" / "train.arrow")[0][0].tolist() == [6, 1, 4]
    separate = run(corpus, tmp_path / "two", vocabulary=[str(dictionary)] * 2, shared_vocab=False)
    assert (separate.target_vocab, separate.shared_vocab) == (7, False)


def test_split_takes_a_fairseq_dictionary_in_its_order(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("the 90\nof@@ 40\n<unk> 7 #fairseq:overwrite\nmadeupword0000 0\n")
    vocabulary = read_dictionary(path)
    assert len(vocabulary) == 8
    assert vocabulary.encode("of@@ the <unk> madeupword0000 a") == [5, 4, 6, 7, UNK]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("the 90\nof\n", "line 2 is not a token and its count"),
        ("the 90\nof x\n", "line 2 is not a token and its count"),
        ("the 90\na b 3\n", "line 2 is not a token and its count"),
        ("the 90\n\n", "line 2 is not a token and its count"),
        ("the 90\nthe 4\n", "line 2 repeats a token"),
        ("", "has no tokens"),
    ],
)
def test_a_wrong_dictionary_names_file_and_line(tmp_path, content, reason):
    path = tmp_path / "dict.txt"
    path.write_text(content)
    with pytest.raises(InputError, match=rf"dict\.txt.*{reason}"):
        read_dictionary(path)


@pytest.mark.parametrize("changes", [{"tokenizer": "bpe"}, {"shared_vocab": False}])
def test_a_dictionary_that_does_not_fit_the_settings_is_an_error(corpus, tmp_path, changes):
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("man 9\n")
    with pytest.raises(InputError, match=r"data\.vocabulary"):
        run(corpus, tmp_path / "out", vocabulary=[str(dictionary)], **changes)


@pytest.mark.parametrize("name", ["train", "valid"])
def test_a_corpus_of_which_nothing_is_left_is_an_error_and_writes_no_store(corpus, tmp_path, name):
    write(corpus, name, [("w " * 50, "w " * 50)] * 3)
    with pytest.raises(InputError, match=rf"'{name}'.*3 pairs read, 0 kept.*3 with a source too"):
        run(corpus, tmp_path / "out")
    assert not (tmp_path / "out" / f"{name}.arrow").exists()


def test_a_missing_validation_corpus_shows_before_any_work(corpus, tmp_path):
    (corpus / "valid.de").unlink()
    with pytest.raises(InputError, match=r"no valid\.de"):
        run(corpus, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["bpe", "split"])
def test_an_error_in_the_text_names_file_and_line_through_all_layers(corpus, tmp_path, kind):
    with (corpus / "train.de").open("ab") as file:
        file.write(b"caf\xe9\n")
    with (corpus / "train.en").open("a") as file:
        file.write("coffee\n")
    with pytest.raises(InputError, match=r"train\.de, line 8 is not valid UTF-8"):
        run(corpus, tmp_path / "out", tokenizer=kind, vocab_size=300)


@pytest.mark.parametrize("kind", ["bpe", "split"])
def test_a_line_of_100_000_tokens_is_dropped_and_counted(corpus, tmp_path, kind):
    write(corpus, "train", [*PAIRS[:2], ("word " * 100_000, "wort " * 100_000), *PAIRS[:2]])
    report = run(corpus, tmp_path / "out", tokenizer=kind, vocab_size=300)
    assert (report.train.read, report.train.kept) == (5, 4)
    assert texts(tmp_path / "out", "train") == PAIRS[:2] * 2


def test_a_tsv_corpus_is_prepared_like_parallel_files(corpus, tmp_path):
    lines = "".join(f"{source}\t{target}\tby someone\n" for source, target in PAIRS)
    (corpus / "pairs.tsv").write_text(lines, encoding="utf-8")
    run(corpus, tmp_path / "out", train="pairs.tsv", valid="pairs.tsv")
    assert texts(tmp_path / "out", "train") == PAIRS[:2]


def test_preparing_twice_gives_the_same_bytes(corpus, tmp_path):
    for out in (tmp_path / "one", tmp_path / "two"):
        run(corpus, out, tokenizer="bpe", vocab_size=300)
    for name in ("train.arrow", "valid.arrow", "run/tokenizer.model"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_memory_stays_flat_while_the_corpus_grows(tmp_path, monkeypatch):
    """Forty chunks of pairs need no more memory than two: nothing is collected on the way."""
    monkeypatch.setattr(store_module, "ROWS", 500)
    peaks = []
    for count in (1_000, 20_000):
        tracemalloc.start()
        pairs = (([5] * 20, [6] * 20) for _ in range(count))
        written = write_store(tmp_path / "s", pairs, 100)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert written == count
    assert peaks[1] < peaks[0] + 50_000  # kept in memory, 19,000 pairs more would be 1.5 MB


@pytest.fixture
def blocks_of_16(monkeypatch):
    """Small chunks, and processes for the third already, so that a small corpus needs them."""
    monkeypatch.setattr(corpus_module, "ROWS", 16)
    monkeypatch.setattr(workers, "FEW", 2)


def write_many(folder, count, seed=1):
    """Pairs of which some are empty, some too long, some out of proportion."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdeäöü▁", k=draw.randint(1, 6))) for _ in range(300)]
    lengths = [0, 1, 2, 3, 5, 8, 13, 30]

    def text():
        return " ".join(draw.choices(words, k=draw.choice(lengths)))

    pairs = [(text(), text()) for _ in range(count)]
    write(folder, "train", pairs)
    lines = "".join(f"{source}\t{target}\tsomeone\n" for source, target in pairs)
    (folder / "pairs.tsv").write_text(lines, encoding="utf-8")


KINDS = {
    "bpe": {"tokenizer": "bpe", "vocab_size": 400},
    "bpe, separate": {"tokenizer": "bpe", "vocab_size": 350, "shared_vocab": False},
    "split": {},
    "split, sources cut": {"max_source": 4, "shared_vocab": False},
    "tsv": {"train": "pairs.tsv"},
    "language model": {"source": ""},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_processes_changes_nothing(corpus, tmp_path, blocks_of_16, kind):
    write_many(corpus, 200)
    reports = {}
    for processes in (1, 2, 3):
        out = tmp_path / str(processes)
        data = data_of(corpus, **KINDS[kind])
        reports[processes] = prepare(data, out, out, processes=processes)
    assert 0 < reports[1].train.kept < reports[1].train.read == 200
    files = sorted(path.name for path in (tmp_path / "1").iterdir())
    for processes in (2, 3):
        assert str(reports[processes]) == str(reports[1])
        assert reports[processes].to_dict() == reports[1].to_dict()
        for name in files:
            same = (tmp_path / "1" / name).read_bytes()
            assert (tmp_path / str(processes) / name).read_bytes() == same


@pytest.mark.parametrize("processes", [1, 2])
def test_the_first_error_is_told_and_names_its_line(corpus, tmp_path, blocks_of_16, processes):
    """A worker finds the first, the reading process the second a few chunks later."""
    write_many(corpus, 200)
    given_ones = run_tokenizers(corpus, tmp_path)
    lines = (corpus / "train.de").read_bytes().split(b"\n")
    lines[150] = b"caf\xe9"
    (corpus / "train.de").write_bytes(b"\n".join(lines) + b"one more\n")
    with pytest.raises(InputError, match=r"train\.de, line 151 is not valid UTF-8"):
        run(corpus, tmp_path / "out", tokenizers=given_ones, processes=processes)
    assert list((tmp_path / "out").iterdir()) == []


def run_tokenizers(corpus, tmp_path):
    run(corpus, tmp_path / "first")
    return Tokenizers.load(tmp_path / "first" / "run")


def test_a_worker_that_is_killed_is_told_and_leaves_nothing_half_written(
    corpus, tmp_path, blocks_of_16, monkeypatch
):
    write_many(corpus, 200)
    given_ones = run_tokenizers(corpus, tmp_path)
    started, start = [], SpawnProcess.start

    def start_and_kill(process):
        start(process)
        started.append(process)
        if len(started) == 2:
            started[0].kill()

    monkeypatch.setattr(SpawnProcess, "start", start_and_kill)
    with pytest.raises(InputError, match=r"worker process .* ended .* run the same"):
        run(corpus, tmp_path / "out", tokenizers=given_ones, processes=2)
    assert list((tmp_path / "out").iterdir()) == []
    assert [process.exitcode is not None for process in started] == [True, True]


def test_ctrl_c_ends_all_processes_and_keeps_what_was_there(corpus, tmp_path):
    """The script has no guard around its main part: workers do not run it again. The signal goes
    to all processes, as a terminal sends it; only the parent reports it."""
    write_many(corpus, 2_000)
    script = tmp_path / "script.py"
    script.write_text(
        "import signal\n"
        "from pathlib import Path\n"
        "from kutta.config import DataConfig\n"
        "from kutta.data import corpus, workers\n"
        "from kutta.data.prepare import prepare\n"
        "corpus.ROWS, workers.FEW = 4, 2\n"
        # A shell that starts us in the background lets us ignore Ctrl-C.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('begun', flush=True)\n"
        f"folder, out = {str(corpus)!r}, Path({str(tmp_path / 'out')!r})\n"
        "data = DataConfig(dir=folder, source='en', target='de', tokenizer='split')\n"
        "while True:\n"
        "    prepare(data, out, out, processes=2)\n"
        "    print('done', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert [process.stdout.readline() for _ in range(3)] == [b"begun\n", b"done\n", b"done\n"]
        workers_seen = set()
        while not workers_seen:
            workers_seen = set(children(process.pid))
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert errors.count(b"Traceback") == 1
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert len(Store.open(tmp_path / "out" / "train.arrow")) > 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"train.arrow", "valid.arrow", "vocab.txt"}
    gone = time.monotonic() + 10
    while any(map(alive, workers_seen)) and time.monotonic() < gone:
        time.sleep(0.01)
    assert not any(map(alive, workers_seen))


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True)
    return [int(line) for line in listed.stdout.split()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_bpe_is_learned_from_every_kth_block_of_a_large_corpus(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "ROWS", 10)
    monkeypatch.setattr(prepare_module, "SENTENCES_TO_LEARN_FROM", 120)
    # 200 pairs are 400 sentences: every 4th chunk of 10 pairs, the first of every 40 pairs.
    pairs = [(f"{'xyz'[n % 3]}{n // 10}", chr(0x4E00 + n // 10)) for n in range(200)]
    write(corpus, "train", pairs)
    run(corpus, tmp_path / "out", tokenizer="bpe", vocab_size=400)
    tokenizer = Tokenizers.load(tmp_path / "out" / "run").source
    known = [n for n in range(20) if len(tokenizer.encode(chr(0x4E00 + n))) <= 2]
    assert known == [0, 4, 8, 12, 16]


def test_multi30k_is_prepared_whole(shared_data, tmp_path):
    folder = shared_data / "multi30k-bpe" / "en-de"
    data = DataConfig(dir=str(folder), source="en", target="de", tokenizer="split")
    report = prepare(data, tmp_path, tmp_path)
    assert (report.train.kept, report.valid.kept) == (29_000, 1_014)
    assert len(Store.open(tmp_path / "train.arrow")) == 29_000
    assert report.source_vocab == 9_712

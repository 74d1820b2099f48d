"""Input of any size: handled, or refused in one sentence, in flat memory and bounded time."""

import gzip
import io
import tracemalloc
from pathlib import Path

import pytest
import torch
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kutta import limits
from kutta.config import DataConfig, DecodeConfig
from kutta.data import corpus
from kutta.data.corpus import read_chunks, read_lines, read_stream
from kutta.errors import InputError
from kutta.runs.division import Machine, divide
from kutta.training import memory
from kutta.training.run import train
from tests.conftest import toy_config, write_toy_corpus
from tests.test_cli import is_one_sentence, kutta

MB = 1 << 20
CPU = torch.device("cpu")


def bomb(path: Path, megabytes: int) -> Path:
    """A small file that expands to this many MB without a newline."""
    block = b"a" * MB
    if path.suffix == ".zst":
        compressor = zstandard.ZstdCompressor().compressobj()
        parts = [compressor.compress(block) for _ in range(megabytes)]
        path.write_bytes(b"".join([*parts, compressor.flush()]))
    elif path.suffix == ".gz":
        with gzip.open(path, "wb", compresslevel=1) as file:
            for _ in range(megabytes):
                file.write(block)
    else:
        with open(path, "wb") as file:
            file.seek(megabytes * MB - 1)
            file.write(b"\0")
    return path


@pytest.mark.parametrize("name", ["bomb.zst", "bomb.gz", "bomb"])
def test_a_line_of_200_mb_is_refused_in_flat_memory(tmp_path: Path, name: str) -> None:
    path = bomb(tmp_path / name, 200)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"bomb.*, line 1 has more than 4 MB"):
        list(read_lines(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * limits.LINE_BYTES
    assert path.suffix == "" or path.stat().st_size < MB


def test_many_lines_of_a_bomb_are_read_in_flat_memory(tmp_path: Path) -> None:
    path, lines = tmp_path / "lines.zst", (b"a" * 1023 + b"\n") * 1024
    compressor = zstandard.ZstdCompressor().compressobj()
    path.write_bytes(b"".join(compressor.compress(lines) for _ in range(30)) + compressor.flush())
    tracemalloc.start()
    assert sum(1 for _ in read_lines(path)) == 30 * 1024
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MB


def test_a_chunk_of_long_lines_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CHUNK_BYTES", 1000)
    lines = [b"x" * 300 + b"\n"] * 20 + [b"y\n"] * 20
    for language in ("xx", "yy"):
        (tmp_path / f"train.{language}").write_bytes(b"".join(lines))
    data = DataConfig(dir=str(tmp_path), source="xx", target="yy")
    chunks = list(read_chunks(data, "train"))
    assert [len(chunk.decode()[0]) for chunk in chunks[:3]] == [2, 2, 2]
    assert b"".join(chunk.lines[1] for chunk in chunks) == b"".join(lines)


@given(st.lists(st.binary(max_size=40)), st.integers(1, 30))
def test_lines_within_the_limit_are_read_as_they_are(lines: list[bytes], most: int) -> None:
    text = b"\n".join(line.replace(b"\n", b"").replace(b"\0", b"") for line in lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kutta.data.streams.LINE_BYTES", most)
        pieces = list(io.BytesIO(text))
        too_long = any(len(piece) > most for piece in pieces)
        try:
            found = list(read_stream(io.BytesIO(text), "input"))
        except InputError as error:
            assert too_long or "UTF-8" in str(error)  # noqa: PT017 (or neither)
        else:
            assert not too_long
            assert len(found) == len(pieces)


# ---- training -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "machine", "device", "reason"),
    [
        ({"workers": 4000, "accumulate": 4000}, Machine(2, 2), "cpu", "with 2 cores, can use"),
        ({"workers": 33, "accumulate": 33}, Machine(8, 8), "cpu", "at most 32"),
        ({"workers": 3, "accumulate": 3}, Machine(8, 8, 2), "cuda", "with 2 GPUs"),
        ({"workers": 5, "pieces": 1, "accumulate": 5}, Machine(8, 8, 4), "cuda", "at most 4"),
    ],
)
def test_more_processes_than_a_machine_can_use_are_refused(
    tmp_path: Path, settings: dict[str, int], machine: Machine, device: str, reason: str
) -> None:
    config = toy_config(tmp_path, train=settings)
    with pytest.raises(InputError, match=reason):
        divide(config, torch.device(device), machine)
    world = settings["workers"]
    assert divide(config, torch.device(device), machine, world).processes == world  # by torchrun


def test_too_many_workers_leave_no_trace(tmp_path: Path) -> None:
    write_toy_corpus(tmp_path / "text")
    config = toy_config(tmp_path, train={"workers": 1000, "accumulate": 1000})
    with pytest.raises(InputError, match=r"train\.workers = 1000"):
        train(config)
    assert not list((tmp_path / "run").iterdir())


def test_a_model_too_large_for_the_machine_is_told_before_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_run: Path
) -> None:
    from kutta.runs import Run

    run = Run.load(toy_run)
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000)
    with pytest.raises(InputError, match=r"Training [\d,]+ parameters needs 0\.\d GB"):
        memory.check_model_fits(run, CPU, 1)
    monkeypatch.setattr(memory, "available_memory", lambda: 0)  # not known
    memory.check_model_fits(run, CPU, 1)
    monkeypatch.setattr("kutta.model.weights.available_memory", lambda: 1000)
    with pytest.raises(InputError, match=r"model\.safetensors needs .* GB of memory"):
        run.load_model()


# ---- translation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        *(
            ("--beam", "1025"),
            ("--beam", "0"),
            ("--max-length", "16385"),
            ("--min-length", "99999"),
        ),
        *(("--n-best", "3"), ("--n-best", "9" * 4000), ("--beam", "9" * 400)),
    ],
)
def test_options_of_the_search_have_limits(toy_run: Path, option: tuple[str, str]) -> None:
    answer = kutta("translate", toy_run, *option, stdin=b"ba\n")
    assert (answer.code, answer.out) == (2, "")
    assert "Traceback" not in answer.err


def test_a_wide_beam_translates_fewer_lines_at_once() -> None:
    from kutta.translate.batches import Source, batches

    lines = [Source(number, [5]) for number in range(100)]
    sizes = [len(batch) for batch in batches(lines, DecodeConfig(beam=1024))]
    assert sizes == [limits.ROWS_AT_ONCE // 1024] * 12 + [4]


def test_a_long_word_without_a_space_is_translated_beside_the_others(toy_run: Path) -> None:
    lines = ["ba be", "ba" * 2500, "", "bi bo"]
    answer = kutta("translate", toy_run, "--beam", "1", stdin="\n".join(lines).encode())
    assert answer.code == 0, answer.err
    found = answer.out.split("\n")
    assert len(found) == 5
    assert len(found[1]) > 1000  # all of it, in segments
    alone = kutta("translate", toy_run, "--beam", "1", stdin=b"ba be\n\nbi bo").out.split("\n")
    assert [found[0], *found[2:]] == alone


def test_sizes_of_a_config_are_shown_without_building_it(tmp_path: Path) -> None:
    answer = kutta("info", "multi30k-rk2", "--set", "model.ffn=262144", "--json")
    assert answer.code == 0, answer.err
    is_one_sentence(kutta("info", "multi30k-rk2", "--set", "model.encoder_layers=1025"), "at most")

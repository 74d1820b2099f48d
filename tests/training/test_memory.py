"""Running out of memory: at once, before anything is learned, in one sentence that helps."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kutta import limits
from kutta.config import Config
from kutta.errors import InputError
from kutta.runs.checkpoints import list_checkpoints
from kutta.training.memory import no_more_than_there_is, out_of_memory

Configure = Callable[..., Config]
CPU, GPU = torch.device("cpu"), torch.device("cuda")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="limits memory by /proc")

# `kutta train` on a machine that has as many MB to give as the first argument says.
ON_A_SMALL_MACHINE = """
import sys
from kutta import limits
free, real = int(sys.argv.pop(1)) << 20, limits.proc_bytes
limits.proc_bytes = lambda file, *names: free if "MemAvailable" in names else real(file, *names)
from kutta.cli import main
main()
"""


@pytest.mark.parametrize(
    ("device", "lanes", "begun", "recompute", "advice"),
    [
        (
            *(CPU, 2, False, False),
            "2 parallel micro-batches of 80 tokens (train.batch_tokens = 160, train.pieces = "
            "2); set train.lanes = 1, or set train.recompute = true, or raise train.pieces.",
        ),
        (
            *(CPU, 1, False, False),
            "a micro-batch of 80 tokens (train.batch_tokens = 160, train.pieces = 2); "
            "set train.recompute = true, or raise train.pieces and keep train.lanes = 1.",
        ),
        (
            *(GPU, 1, False, True),
            "a micro-batch of 80 tokens (train.batch_tokens = 160, train.pieces = 2); "
            "raise train.pieces.",
        ),
        (
            *(GPU, 1, True, False),
            "a micro-batch of 80 tokens (train.batch_tokens = 160, train.pieces = 2); "
            "set train.recompute = true, or start a new run with more train.pieces.",
        ),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        MemoryError(),
    ],
)
def test_the_sentence_says_what_helps(
    configure: Configure,
    device: torch.device,
    lanes: int,
    begun: bool,
    recompute: bool,
    advice: str,
    error: Exception,
) -> None:
    settings = configure("train.pieces=2", f"train.recompute={str(recompute).lower()}").train
    with (
        pytest.raises(InputError) as told,
        out_of_memory(settings, device, lanes, begun),
    ):
        raise error
    assert str(told.value) == f"There is not enough memory for {advice}"


def test_other_errors_stay_what_they_are(configure: Configure) -> None:
    with (
        pytest.raises(RuntimeError, match="shapes"),
        out_of_memory(configure().train, CPU, 1, False),
    ):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


@needs_linux
def test_memory_is_limited_to_what_is_there_and_only_for_a_while() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    with no_more_than_there_is(GPU, 1):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with no_more_than_there_is(CPU, 1):
        whole, _ = resource.getrlimit(resource.RLIMIT_DATA)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            torch.empty(whole, dtype=torch.uint8)
    with no_more_than_there_is(CPU, 2):
        half, _ = resource.getrlimit(resource.RLIMIT_DATA)
    assert 0 < half < whole
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@needs_linux
def test_a_container_has_less_than_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_CONTROL_GROUP", tmp_path / "nowhere")
    machine = limits.available_memory()
    monkeypatch.setattr(limits, "_CONTROL_GROUP", tmp_path)
    (tmp_path / "memory.stat").write_text("anon 3000\nfile 9000\n")
    for most, free in (("10000", 7000), ("2000", 0), ("max", machine)):
        (tmp_path / "memory.max").write_text(f"{most}\n")
        assert limits.available_memory() == pytest.approx(free, rel=0.2)


@needs_linux
@pytest.mark.parametrize(("free", "fits"), [(100, False), (4000, True)])
def test_too_little_memory_shows_before_the_first_update(
    configure: Configure, tmp_path: Path, free: int, fits: bool
) -> None:
    path = tmp_path / "config.json"
    wide = ("model.ffn=32768", "train.threads=1", "train.max_steps=1")  # 20 MB for each tensor
    config = configure(*wide)
    path.write_text(config.to_json())
    command = [sys.executable, "-c", ON_A_SMALL_MACHINE, str(free), "train", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert bool(list_checkpoints(Path(config.run))) == fits
    if fits:
        assert ended.returncode == 0, ended.stderr
        return
    assert ended.returncode == 2, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("kutta: There is not enough memory for a micro-batch of 160 tokens")
    assert "Traceback" not in ended.stderr

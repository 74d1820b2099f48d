"""Several processes train as one does: the same losses, weights and batches, saved and resumed.

Run as a script, this file is one of those processes: it makes the trainings of a list of jobs.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from kutta.config import Config, ModelConfig
from kutta.data.batches import BatchStream
from kutta.data.store import Store
from kutta.data.tokenizer import Tokenizers
from kutta.errors import InputError
from kutta.model.transformer import build_model
from kutta.model.weights import read_origin, read_shapes, write_tensors
from kutta.ode import METHODS
from kutta.runs.checkpoints import list_checkpoints, prune
from kutta.training.checkpoint import Progress, resume, save_checkpoint
from kutta.training.loop import fit, make_trainer, try_largest_batch
from kutta.training.objective import token_loss
from kutta.training.parallel.group import SINGLE, ProcessGroup, join
from kutta.training.parallel.shards import read_shards, whole_tensors

Configure = Callable[..., Config]
Assemble = Callable[[Config], Any]


@dataclass(frozen=True)
class Job:
    """A training in the run of `config`: up to `steps`, saved after some of them."""

    config: str
    steps: int
    save: tuple[int, ...] = ()
    begin: str = ""  # a checkpoint to resume from


def perform(job: Job, group: ProcessGroup) -> dict[str, Any]:
    """Train as `kutta train` does, without validation; what this process saw of it."""
    config = Config.load(job.config)
    run = Path(job.config).parent
    if job.begin and group.is_main:
        begin = Path(job.begin)
        shutil.copytree(begin, run / "checkpoints" / begin.name)
    group.sum(0.0)  # wait for all ranks
    tokenizers = Tokenizers.load(run)
    store = Store.open(run / "store" / "train.arrow")
    stream = BatchStream(store, config.train.micro_tokens, config.train.seed)
    torch.manual_seed(config.train.seed)
    sizes = len(tokenizers.source), len(tokenizers.target)
    model = build_model(config.model, *sizes, tokenizers.shared)
    count = sum(p.numel() for p in model.parameters())
    trainer = make_trainer(model, config.train, torch.device("cpu"), group)
    progress = resume(run, trainer) or Progress()
    try_largest_batch(trainer, stream, config.train)
    take, taken = stream.take, list[int]()

    def noted(number: int) -> Any:
        taken.append(number)
        return take(number)

    stream.take = noted  # pyright: ignore[reportAttributeAccessIssue]
    steps: list[tuple[float, float, bool]] = []
    for step in islice(fit(trainer, stream, config.train), job.steps - trainer.step):
        steps.append((step.loss, step.grad_norm, step.skipped))
        if step.number in job.save:
            save_checkpoint(run, trainer, progress)
    weights = whole_tensors(model, keep=group.is_main)
    if group.is_main:
        write_tensors(weights, run / "end.safetensors")
    held = sum(p.to_local().numel() for p in model.parameters() if hasattr(p, "to_local"))
    return {
        "loss": [loss for loss, _, _ in steps],
        "norm": [norm for _, norm, _ in steps],
        "skipped": [skipped for _, _, skipped in steps],
        "taken": taken,
        "whole_count": sum(p.numel() for p in model.parameters()) == count,
        "held": held / count,
    }


Launch = tuple[int, list[Job]]  # how many processes, and what they do


def together(launches: list[Launch], folder: Path) -> list[list[dict[str, Any]]]:
    """Make the jobs of launches one after another: what each process saw, by job."""
    folder.mkdir()
    plan = [(world, [asdict(job) for job in jobs]) for world, jobs in launches]
    (folder / "launches.json").write_text(json.dumps(plan))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(folder)]
    script = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        assert script.wait(timeout=300) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
        script.communicate()
    return [
        list(seen)
        for number, (world, _) in enumerate(launches)
        for seen in zip(
            *(json.loads((folder / f"{number}-{rank}").read_text()) for rank in range(world)),
            strict=True,
        )
    ]


def main(folder: Path) -> None:
    """Fork the processes of each launch: they need not start one by one."""
    torch.set_num_threads(1)
    for number, (world, jobs) in enumerate(json.loads((folder / "launches.json").read_text())):
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(world),
            "GLOO_SOCKET_IFNAME": "lo",
        }
        group = [fork(rank, jobs, folder / f"{number}-{rank}") for rank in range(world)]
        codes = [os.waitpid(process, 0)[1] for process in group]
        if any(codes):
            sys.exit(f"launch {number} failed")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def fork(rank: int, jobs: list[dict[str, Any]], out: Path) -> int:
    if process := os.fork():
        return process
    os.environ["RANK"] = str(rank)
    try:
        with join(torch.device("cpu")) as group:
            results = [perform(Job(**job), group) for job in jobs]
        out.write_text(json.dumps(results))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


# ---- two processes train as one does --------------------------------------------------------

MODEL = (
    *("model.dropout=0.3", "model.attention_dropout=0.1", "model.relu_dropout=0.1"),
    *("model.encoder_layers=2", "model.solver=rk2", "train.max_steps=12"),
)
TWO = "train.accumulate=2"
# Settings, and whether a model of them can also be trained with its parameters split.
KINDS: dict[str, tuple[tuple[str, ...], bool]] = {
    "accumulate-2": ((TWO, "model.gamma=ema"), True),
    "accumulate-4": (("train.accumulate=4", "model.gamma=learned"), True),
    "accumulate-3": (("train.accumulate=3",), False),
    "pieces": (("train.batch_tokens=320", "train.pieces=2"), True),
    "clipped": ((TWO, "train.clip_norm=0.2", "model.solver=multistep"), True),
    "recomputed": ((TWO, "train.recompute=true", "model.gamma=gated"), True),
    "separate": ((TWO, "data.shared_vocab=false", "model.solver=dlcl"), True),
    "shared-layers": ((TWO, "model.share_layers=true", "model.gamma=ema"), True),
    "separate-stages": ((TWO, "model.stage_parameters=separate"), True),
    "shared-gamma": ((TWO, "model.share_gamma=true", "model.gamma=ema"), True),
    "release": ((TWO, "model.replicate=release"), True),
    "bf16": ((TWO, "train.precision=bf16"), True),
    "fp16": ((TWO, "train.precision=fp16"), True),
    "layer-drop": (("train.accumulate=4", "model.layer_drop=0.4"), False),
    "language": ((TWO, "data.source=", "model.encoder_layers=0", "model.decoder_layers=2"), True),
    "untied": ((TWO, "model.tie_embeddings=false"), True),
    "untied-layer-drop": (
        ("train.accumulate=4", "model.tie_embeddings=false", "model.layer_drop=0.4"),
        False,
    ),
}
WAYS = [
    *((kind, "ddp") for kind in KINDS),
    *((kind, "fsdp") for kind, (_, splits) in KINDS.items() if splits),
]
LONG, SHORT = 12, 4
HEADS = 2


SAVED = ("single", "ddp", "fsdp")
RESUMED = [(saved, way) for saved in SAVED for way in SAVED]
BY_THREE = ("ddp", "fsdp")


@dataclass
class Bench:
    """Trainings by one process beside the same by two, made when a first test asks for them."""

    folder: Path
    single: dict[str, dict[str, Any]]
    each: dict[tuple[str, str], list[dict[str, Any]]]
    resumed: dict[tuple[str, str], dict[str, Any]]
    by_three: dict[str, list[dict[str, Any]]]

    def run(self, kind: str, way: str) -> Path:
        return self.folder / f"{kind}-{way}"

    def checkpoint(self, kind: str, way: str, step: int) -> Path:
        return self.run(kind, way) / "checkpoints" / f"step-{step:08d}"


@pytest.fixture(scope="module")
def empty_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"), {}, {}, {}, {})


@pytest.fixture
def bench(empty_bench: Bench, configure: Configure, assemble: Assemble) -> Bench:
    """All kinds of models trained by this process, then by others in all ways; resumed, too."""
    bench = empty_bench
    if bench.each:
        return bench

    def job(kind: str, way: str, run: Path, *more: str, begin: Path | None = None) -> Job:
        shard = f"train.shard={str(way == 'fsdp').lower()}"
        assemble(configure(*MODEL, *KINDS[kind][0], shard, f"run={run}", *more))
        long = kind.startswith("accumulate")
        steps, save = (LONG, (5, 10)) if long else (SHORT, ())
        return Job(str(run / "config.json"), steps, save, str(begin or ""))

    def resuming(saved: str, way: str) -> Job:
        begin = bench.checkpoint("accumulate-2", saved, 5)
        return job("accumulate-2", way, bench.folder / f"{saved}-to-{way}", begin=begin)

    def by_three(way: str) -> Job:
        begin = bench.checkpoint("accumulate-4", "fsdp", 5)
        run = bench.folder / f"three-{way}"
        return job("accumulate-4", way, run, "train.accumulate=6", begin=begin)

    bench.single.update(
        {k: perform(job(k, "single", bench.run(k, "single")), SINGLE) for k in KINDS}
    )
    spread = [way for way in RESUMED if way[1] != "single"]
    jobs = [job(*way, bench.run(*way)) for way in WAYS] + [resuming(*way) for way in spread]
    third = [by_three(way) for way in BY_THREE]
    seen = together([(2, jobs), (3, third)], bench.folder / "launches")
    bench.each.update(zip(WAYS, seen, strict=False))
    for way, each in zip(spread, seen[len(WAYS) :], strict=False):
        bench.resumed[way] = each[0]
    bench.by_three.update(zip(BY_THREE, seen[len(jobs) :], strict=True))
    bench.by_three["single"] = [perform(by_three("single"), SINGLE)]
    for saved in SAVED:
        bench.resumed[saved, "single"] = perform(resuming(saved, "single"), SINGLE)
    return bench


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_two_processes_train_as_one_does(bench: Bench, kind: str, way: str) -> None:
    """Losses, norms of the gradients and weights, dropout included; both see the same."""
    one, each = bench.single[kind], bench.each[kind, way]
    assert each[0]["loss"] == each[1]["loss"]
    assert each[0]["norm"] == each[1]["norm"]
    rough = 10 if kind in ("bf16", "fp16") else 1
    assert each[0]["loss"] == pytest.approx(one["loss"], rel=1e-5 * rough)
    assert each[0]["norm"] == pytest.approx(one["norm"], rel=1e-4 * rough)
    assert each[0]["skipped"] == one["skipped"]
    files = (bench.run(kind, w) / "end.safetensors" for w in ("single", way))
    assert_close(*files, 1e-4 * rough)
    assert len(set(one["loss"])) == len(one["loss"]) >= SHORT, "nothing was learned"


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_two_processes_read_disjoint_batches_that_are_together_those_of_one(
    bench: Bench, kind: str, way: str
) -> None:
    one, (first, second) = bench.single[kind], bench.each[kind, way]
    assert not set(first["taken"]) & set(second["taken"])
    assert sorted(first["taken"] + second["taken"]) == one["taken"]
    assert one["taken"] == list(range(len(one["taken"]))), "each exactly once"


def test_split_parameters_are_split_and_counted_whole(bench: Bench) -> None:
    for (kind, way), each in bench.each.items():
        assert all(seen["whole_count"] for seen in each)
        parts = [seen["held"] for seen in each]
        if way == "ddp":
            assert parts == [0, 0]
        else:  # all but single numbers, and none twice
            assert 0.99 < sum(parts) <= 1, kind
            assert max(parts) < 0.6, kind


def assert_close(one: Path, other: Path, tolerance: float) -> None:
    """Two files of weights, against the size of each tensor.

    Biases of keys are left out: attention does not depend on them, so what Adam makes of their
    gradients follows from rounding only.
    """
    first, second = load_file(one), load_file(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        gap = np.abs(tensor - second[name])
        if tolerance and name.endswith("qkv.bias"):
            gap.reshape(HEADS, 3, -1)[:, 1] = 0
        elif tolerance and name.endswith(".kv.bias"):
            gap.reshape(HEADS, 2, -1)[:, 0] = 0
        assert gap.max() <= tolerance * np.abs(tensor).max(), name


@given(first=st.integers(0, 10**6), count=st.integers(1, 40), world=st.integers(1, 9))
def test_numbers_are_shared_out_without_rest(first: int, count: int, world: int) -> None:
    numbers = range(first, first + count)
    shares = [ProcessGroup(rank, world).share(numbers) for rank in range(world)]
    assert sorted(n for share in shares for n in share) == list(numbers)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


# ---- every kind of model can be spread ------------------------------------------------------

GAMMAS = ("tableau", "ones", "learned", "gated", "ema")
FIELDS = ("san+ffn", "san/ffn", "san", "ffn", "macaron")


@pytest.mark.parametrize("method", [m for m in METHODS if m != "custom"])
def test_every_parameter_gets_a_gradient(method: str) -> None:
    """DDP waits for the gradient of each parameter; one without would stop a training."""
    sizes = {"d_model": 4, "ffn": 4, "heads": 1, "encoder_layers": 2, "decoder_layers": 1}
    ids = torch.tensor([[3, 4, 5, 2]])
    tried = 0
    for gamma, field in product(GAMMAS, FIELDS):
        values = sizes | {"solver": method, "gamma": gamma, "field": field}
        try:
            settings = ModelConfig.model_validate(values | {"relative_positions": 2})
        except ValueError:
            continue  # these do not go together
        model = build_model(settings, 9, 9, shared=True)
        token_loss(model(ids, ids), model.output_weight, ids, model.pad, 0.1).smoothed.backward()
        assert [n for n, p in model.named_parameters() if p.grad is None] == [], (gamma, field)
        tried += 1
    assert tried


# ---- saved by some, resumed by others -------------------------------------------------------


@pytest.mark.parametrize(("saved", "way"), RESUMED)
def test_resumed_with_another_number_of_processes_or_another_way(
    bench: Bench, saved: str, way: str
) -> None:
    """By one or by two, with parameters split or not: as if it had not been interrupted."""
    kind, seen = "accumulate-2", bench.resumed[saved, way]
    straight = bench.single[kind] if saved == "single" else bench.each[kind, saved][0]
    files = bench.run(kind, saved), bench.folder / f"{saved}-to-{way}"
    ends = [run / "end.safetensors" for run in files]
    assert seen["loss"] == pytest.approx(straight["loss"][5:], rel=1e-5)
    assert_close(*ends, 1e-4)
    if saved == way:  # to the last bit
        assert seen["loss"] == straight["loss"][5:]
        assert ends[0].read_bytes() == ends[1].read_bytes()


@pytest.mark.parametrize("way", BY_THREE)
def test_shards_of_two_are_resumed_by_three(bench: Bench, way: str) -> None:
    (one,), three = bench.by_three["single"], bench.by_three[way]
    assert three[0]["loss"] == pytest.approx(one["loss"], rel=1e-5)
    assert [len(seen["taken"]) for seen in three] == [2 * (LONG - 5)] * 3
    files = (bench.folder / f"three-{w}" / "end.safetensors" for w in ("single", way))
    assert_close(*files, 1e-4)


def test_the_export_of_shards_is_the_checkpoint_of_one_process(bench: Bench) -> None:
    """Beside the shards lies one file of all weights, as one process writes it."""
    for kind in ("accumulate-2", "accumulate-4"):
        one, other = (
            bench.checkpoint(kind, way, 10) / "model.safetensors" for way in ("single", "fsdp")
        )
        assert_close(one, other, 1e-4)
        assert read_shapes(one) == read_shapes(other)
        assert read_origin(one) == read_origin(other)


def test_a_run_with_shards_holds_no_pickle(bench: Bench) -> None:
    run = bench.run("accumulate-2", "fsdp")
    files = [path for path in run.rglob("*") if path.is_file()]
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"step-00000005", "step-00000010"}
    shards = [path for path in files if path.parent.name == "shards"]
    assert len(shards) == 4, "one a process"
    for path in files:
        assert path.suffix not in (".metadata", ".distcp", ".pt", ".pkl"), path
        assert path.name != ".metadata", path
        assert not path.read_bytes().startswith((b"\x80", b"PK")), path
        assert str(run.parent).encode() not in path.read_bytes() or path.name == "config.json"
    for path in shards:
        with safe_open(path, framework="np") as file:
            assert any(name.startswith("exp_avg_sq.") for name in file.keys())  # noqa: SIM118


# ---- damaged shards -------------------------------------------------------------------------


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def rename_a_tensor(path: Path) -> None:
    tensors = load_file(path)
    with safe_open(path, framework="np") as file:
        about = file.metadata()
    about["DCP_SHARDING_INFO"] = about["DCP_SHARDING_INFO"].replace("encoder", "decoder")
    save_file({n.replace("encoder", "decoder"): t for n, t in tensors.items()}, path, about)


@pytest.mark.parametrize(
    "damage", [cut, Path.unlink, rename_a_tensor, lambda path: path.write_bytes(b"")]
)
@pytest.mark.parametrize("file", ["shard-00001*", "shard-00002*", "../state.json"])
def test_damaged_shards_are_named_with_a_way_out(
    bench: Bench, configure: Configure, assemble: Assemble, damage: Any, file: str
) -> None:
    if file.endswith("json") and damage is rename_a_tensor:
        pytest.skip("this is not a file of tensors")
    kind = "accumulate-2"
    begin = bench.run(kind, "fsdp") / "checkpoints"
    fresh = assemble(configure(*MODEL, *KINDS[kind][0]))
    shutil.copytree(begin, fresh.run / "checkpoints", dirs_exist_ok=True)
    newest = list_checkpoints(fresh.run)[-1].path
    (path,) = (newest / "shards").glob(file)
    damage(path)
    with pytest.warns(UserWarning, match="is damaged") as caught:
        assert resume(fresh.run, fresh.trainer) is not None
    (told,) = [str(one.message) for one in caught]
    assert f"The checkpoint {newest} is damaged" in told
    assert "so training resumes from step 5" in told
    assert "\n" not in told
    assert fresh.trainer.step == 5


def test_a_part_from_the_middle_is_missed(bench: Bench, tmp_path: Path) -> None:
    """The sizes of what is left would not show it."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for number, offset in ((1, 0), (2, 2), (3, 4)):
        about = {"DCP_SHARDING_INFO": json.dumps({"x": {"saved_offsets": [offset]}})}
        part = np.arange(offset, offset + 2, dtype=np.float32)
        save_file({"x": part}, folder / f"shard-{number}.safetensors", about)
    layout = {"x": torch.zeros(6)}
    assert read_shards(folder, layout, SINGLE)["x"].tolist() == [0, 1, 2, 3, 4, 5]
    (folder / "shard-2.safetensors").unlink()
    with pytest.raises(InputError, match="lacks a shard of x"):
        read_shards(folder, layout, SINGLE)


def test_only_the_newest_two_keep_their_shards(
    bench: Bench, configure: Configure, assemble: Assemble
) -> None:
    fresh = assemble(configure())
    begin = bench.run("accumulate-2", "fsdp") / "checkpoints" / "step-00000005"
    for step in range(1, 5):
        shutil.copytree(begin, fresh.run / "checkpoints" / f"step-{step:08d}")
    prune(fresh.run, 3, best_step=0)
    found = [(str(one.step), one.shards.is_dir()) for one in list_checkpoints(fresh.run)]
    assert found == [("2", False), ("3", True), ("4", True)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))

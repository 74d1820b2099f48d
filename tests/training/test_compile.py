"""Compiled layers: few compilations, the same losses, and nothing that others would notice."""

import copy
import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

from kutta.config import Config
from kutta.data.batches import Batch, BatchStream
from kutta.data.store import Store
from kutta.errors import InputError
from kutta.model import StackShape, TranslationModel
from kutta.model.weights import read_tensors
from kutta.ode import METHODS
from kutta.training.checkpoint import Progress, resume, save_checkpoint
from kutta.training.compilation import compile_layers
from kutta.training.loop import Step, fit
from kutta.training.run import train
from kutta.training.validate import held_out_loss
from tests.model.shapes import changed, shape_of

Configure = Callable[..., Config]
Assemble = Callable[[Config], Any]

STILL = ("model.dropout=0.0", "model.attention_dropout=0.0", "model.relu_dropout=0.0")
real_compile = torch.compile


class Compiler:
    """A backend that counts what it is given and leaves it as it is, or hands it on."""

    def __init__(self, backend: str = "eager") -> None:
        self.graphs = 0
        self.backend = torch._dynamo.lookup_backend(backend)

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return self.backend(graph, inputs)

    def use(self, monkeypatch: pytest.MonkeyPatch, **settings: bool) -> None:
        """Be what torch.compile compiles with."""
        monkeypatch.setattr(
            torch, "compile", lambda F, **own: real_compile(F, backend=self, **own | settings)
        )


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Forget what other tests compiled, and leave torch's settings as they were."""
    with torch._dynamo.config.patch({}):
        torch._dynamo.reset()
        yield
    torch._dynamo.reset()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    found = Compiler()
    found.use(monkeypatch)
    return found


@pytest.fixture
def long_corpus(tmp_path: Path) -> Path:
    """Pairs of 1 to 10 words, the two sides of like but not of the same length."""
    draw, folder = random.Random(3), tmp_path / "text"
    folder.mkdir()
    for name, count in (("train", 300), ("valid", 5), ("test", 5)):
        lengths = [draw.randint(1, 10) for _ in range(count)]
        sides = {
            "aa": lengths,
            "bb": [max(1, length + draw.randint(-2, 2)) for length in lengths],
        }
        for language, side in sides.items():
            lines = [" ".join(draw.choices("abcdefgh", k=length)) for length in side]
            (folder / f"{name}.{language}").write_text("\n".join(lines) + "\n")
    return folder


class Repeated:
    """A stream of one batch: one shape, and dropout that is still drawn each time."""

    def __init__(self, stream: BatchStream) -> None:
        self.batch = stream.take(0)

    def take(self, number: int) -> Batch:
        return self.batch

    def epoch_of(self, number: int) -> tuple[int, int]:
        return number, 0


def with_one_batch(bench: Any) -> Any:
    bench.stream = Repeated(bench.stream)
    return bench


def with_few_shapes(bench: Any) -> Any:
    """The stream that `train` makes where layers are compiled."""
    config = bench.config.train
    store = Store.open(bench.run / "store" / "train.arrow")
    bench.stream = BatchStream(store, config.batch_tokens, config.seed, few_shapes=True)
    return bench


def steps(bench: Any, count: int) -> list[Step]:
    return list(islice(fit(bench.trainer, bench.stream, bench.config.train), count))


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


# ---- how often ------------------------------------------------------------------------------


def test_equal_layers_are_compiled_once_for_each_shape(
    configure: Configure, assemble: Assemble, compiler: Compiler, long_corpus: Path
) -> None:
    config = configure(
        *(f"data.dir={long_corpus}", "train.batch_tokens=160", "train.compile=true"),
        *("model.encoder_layers=2", "model.decoder_layers=2", "train.max_steps=1000"),
    )
    bench = with_few_shapes(assemble(config))
    epoch = bench.stream.batches_per_epoch
    batches = [bench.stream.take(number) for number in range(2 * epoch)]
    # The encoder sees the source and whether it is padded, the decoder the target too.
    sources = {(b.source.shape, bool((b.source == 0).any())) for b in batches}
    pairs = {(b.source.shape, bool((b.source == 0).any()), b.target_in.shape) for b in batches}
    assert 3 < len(pairs) < epoch / 2, "there are several shapes, but few"
    steps(bench, 2 * epoch)
    assert compiler.graphs == len(sources) + len(pairs)


def test_validation_and_decoding_are_not_compiled(
    configure: Configure, assemble: Assemble, compiler: Compiler
) -> None:
    """They have a new shape every time, and would be recompiled endlessly."""
    config = configure("train.compile=true", "model.solver=rk2")
    bench = with_one_batch(assemble(config))
    steps(bench, 1)
    before, model = compiler.graphs, bench.trainer.model
    assert before == 2
    pairs = [([5] * length, [6] * length) for length in range(1, 9)]
    held_out_loss(model, pairs, config.train, bench.trainer.device)
    with torch.inference_mode():
        state = model.start(model.encode(torch.tensor([[4, 5, 6, 3]])))
        for _ in range(5):
            model.step(torch.tensor([2]), state)
    assert compiler.graphs == before


# ---- the same mathematics -------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        ("model.solver=rk2", "model.gamma=learned"),
        ("model.solver=rk4", "train.recompute=true"),
        ("model.solver=euler", "train.precision=bf16", "train.recompute=true"),
        ("model.solver=dlcl", "train.accumulate=2"),
        ("model.solver=rk2", "model.decoder_solver=rk2", "model.stage_parameters=separate"),
    ],
    ids=" ".join,
)
def test_losses_are_those_of_layers_that_are_not_compiled(
    configure: Configure,
    assemble: Assemble,
    monkeypatch: pytest.MonkeyPatch,
    settings: tuple[str, ...],
) -> None:
    compiler = Compiler("aot_eager")
    compiler.use(monkeypatch)
    common = (*settings, "model.encoder_layers=2", *STILL)
    wanted = steps(with_one_batch(assemble(configure(*common))), 4)
    assert compiler.graphs == 0
    found = steps(with_one_batch(assemble(configure(*common, "train.compile=true"))), 4)
    assert compiler.graphs > 0
    rate = 2e-3 if "train.precision=bf16" in settings else 1e-5
    assert [s.loss for s in found] == pytest.approx([s.loss for s in wanted], rel=rate)
    norms = [[s.grad_norm for s in each] for each in (found, wanted)]
    assert norms[0] == pytest.approx(norms[1], rel=10 * rate)


SHAPE = shape_of(12, 20, 3, layers=2, clip=2)
SHAPES: dict[str, StackShape] = {
    "euler": SHAPE,
    "rk2 learned": changed(SHAPE, method="rk2", gamma="learned"),
    "rk2 gated": changed(SHAPE, method="rk2", gamma="gated"),
    "rk4": changed(SHAPE, method="rk4"),
    "san/ffn": changed(SHAPE, method="rk2", placement="san/ffn"),
    "leapfrog": changed(SHAPE, method="leapfrog"),
    "dlcl": changed(SHAPE, method="dlcl"),
    "post-norm": changed(SHAPE, norm="post"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_layer_is_one_graph(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With dropout on; a layer in pieces would raise an error here."""
    compiler = Compiler()
    compiler.use(monkeypatch, fullgraph=True)
    decoder = changed(SHAPES[name], cross=True)
    model = TranslationModel(SHAPES[name], decoder, 19, 19, shared=True)
    compile_layers(model)
    source = torch.tensor([[5, 9, 4, 12, 3, 0], [8, 8, 17, 6, 11, 3]])
    target = torch.tensor([[2, 7, 13, 4], [2, 10, 6, 0]])
    model(source, target).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    # Methods that look back find another history in their second layer.
    assert compiler.graphs == (4 if METHODS[SHAPES[name].method].looks_back else 2)


# ---- unnoticed by others --------------------------------------------------------------------


def test_weights_keep_their_names_and_resume_without_compilation(
    configure: Configure, assemble: Assemble, compiler: Compiler
) -> None:
    compiled = with_one_batch(assemble(configure("train.compile=true", *STILL)))
    plain = with_one_batch(assemble(configure(*STILL)))
    steps(compiled, 2)
    path = save_checkpoint(compiled.run, compiled.trainer, Progress()).path
    saved = read_tensors(path / "model.safetensors")
    assert (
        saved.keys()
        == read_tensors(save_checkpoint(plain.run, plain.trainer, Progress()).weights).keys()
    )
    assert not any("_orig_mod" in name for name in saved)
    resume(plain.run, plain.trainer)
    assert same_weights(plain.trainer.model, compiled.trainer.model)
    one, other = steps(plain, 1), steps(compiled, 1)
    assert one[0].loss == pytest.approx(other[0].loss, rel=1e-6)


def test_a_copy_of_a_model_uses_its_own_weights(
    configure: Configure, assemble: Assemble, compiler: Compiler
) -> None:
    model = assemble(configure("train.compile=true", *STILL)).trainer.model
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.5)
    ids = torch.tensor([[4, 5, 6, 3]])
    compiled = twin(ids, ids)
    with torch.no_grad():
        expected = twin(ids, ids)
    torch.testing.assert_close(compiled, expected)
    assert not torch.allclose(model(ids, ids), expected)


@pytest.mark.parametrize(
    ("backend", "stream"),
    [
        ("aot_eager", with_one_batch),
        pytest.param("inductor", with_few_shapes, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_training_is_identical(
    configure: Configure,
    assemble: Assemble,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    stream: Callable[[Any], Any],
) -> None:
    """Compiled dropout too follows from seed and micro-batch, whatever was compiled before."""
    Compiler(backend).use(monkeypatch)
    config = configure("train.compile=true", "model.dropout=0.3", "model.solver=rk2")
    straight, halted = (stream(assemble(config)) for _ in range(2))
    wanted = steps(straight, 5)
    assert len({step.loss for step in wanted}) == 5
    steps(halted, 3)
    save_checkpoint(halted.run, halted.trainer, Progress())
    torch._dynamo.reset()  # as a new process begins
    resumed = stream(assemble(config))
    resume(resumed.run, resumed.trainer)
    torch.manual_seed(99)
    assert [step.loss for step in steps(resumed, 2)] == [step.loss for step in wanted[3:]]
    assert same_weights(resumed.trainer.model, straight.trainer.model)


@pytest.mark.slow
def test_compiled_code_computes_the_same(configure: Configure, assemble: Assemble) -> None:
    """With the compiler that training uses."""
    settings = ("model.solver=rk2", "model.gamma=learned", *STILL)
    wanted = steps(with_few_shapes(assemble(configure(*settings))), 4)
    found = steps(with_few_shapes(assemble(configure(*settings, "train.compile=true"))), 4)
    assert [s.loss for s in found] == pytest.approx([s.loss for s in wanted], rel=1e-5)


# ---- from start to end ----------------------------------------------------------------------


def test_train_pads_to_few_shapes_where_it_compiles(
    configure: Configure, compiler: Compiler, silent: Any
) -> None:
    settings = ("train.compile=true", "train.valid_bleu=true", "train.max_steps=6")
    outcome = train(configure(*settings), console=silent)
    assert outcome.ended == "finished"
    # 96 pairs of 3 to 8 words: widths of 8 and 12 on either side, and the last, smaller batch.
    assert 0 < compiler.graphs <= 2 * 5


def test_a_machine_without_a_compiler_is_told_so(
    configure: Configure, assemble: Assemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.exc import InvalidCxxCompiler

    def fail(graph: Any, inputs: Any) -> Any:
        raise InvalidCxxCompiler

    compiler = Compiler()
    compiler.backend = fail
    compiler.use(monkeypatch)
    bench = with_few_shapes(assemble(configure("train.compile=true")))
    with pytest.raises(
        InputError, match=r"cannot be compiled.*C\+\+ compiler.*train\.compile"
    ) as said:
        steps(bench, 1)
    assert "\n" not in str(said.value)

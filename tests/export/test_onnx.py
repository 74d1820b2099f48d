"""Exported graphs against torch: the same continuations of every method, and the same text."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from kutta.commands.describe import describe
from kutta.config import DecodeConfig, ModelConfig
from kutta.data.tokenizer import EOS
from kutta.errors import InputError
from kutta.export.export import export_run, write_model
from kutta.export.graphs import B, K
from kutta.export.products import Int8
from kutta.export.program import Recorder, Unknown
from kutta.export.shared import read_stored
from kutta.export.trace import Tracer
from kutta.integrity import write_manifest
from kutta.model.linear import Linear
from kutta.model.transformer import build_model
from kutta.model.weights import own_tensors, read_tensors
from kutta.ode.methods import METHODS
from kutta.runs import Run
from kutta.runtime.asked import OPERATORS, asked_by
from kutta.runtime.directory import DECODER, ENCODER, EXPORT, FORMAT, WEIGHTS, Exported, Facts
from kutta.runtime.kernels import obstacle
from kutta.runtime.program import PROGRAM
from kutta.runtime.session import Session
from kutta.translate import Translator, beam_search, native, workers
from kutta.translate import exported as exported_model
from kutta.translate.exported import ExportedModel
from kutta.translate.pytorch import SingleModel
from kutta.translate.scorer import Scorer
from kutta.translate.workers import Arrangement
from tests.conftest import toy_config

VOCABULARY = 61
SOURCES = [[*range(4, 4 + n), EOS] for n in (7, 3, 1)]


def model_of(
    seed: int = 0, vocabulary: int = VOCABULARY, noise: float = 0.3, **settings: Any
) -> Any:
    """A model whose learned coefficients and positions are not where they start."""
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "ffn": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    config = ModelConfig.model_validate(sizes | {"solver": "euler"} | settings)
    model = build_model(config, vocabulary, vocabulary, True).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return model


def exported(model: Any, folder: Path, precision: str = "fp32") -> ExportedModel:
    write_model(model, folder, precision, "test")
    for graph in folder.glob("*.onnx"):
        assert asked_by(graph).operators <= OPERATORS, "which open_export refuses"
    return ExportedModel(Exported(folder, Facts.read(folder / EXPORT), toy_config(folder)))


def tables(scorer: Scorer, beam: int = 3, steps: int = 5) -> list[np.ndarray[Any, Any]]:
    """Log-probabilities while hypotheses part, and a sentence makes room for another."""
    decoding = scorer.start(beam)
    decoding.select([], 2)
    decoding.enter([0, 1], SOURCES[:2])
    found = list[np.ndarray[Any, Any]]()
    random = np.random.default_rng(1)
    for step in range(steps):
        tokens = random.integers(4, VOCABULARY, (2, beam))
        found.append(decoding.step(tokens, scorer.vocabulary).values)
        decoding.extend(random.integers(0, beam, (2, beam)))
        if step == 2:
            decoding.enter([0], SOURCES[2:])
    return found


# Each method in encoder and decoder, each gamma, placement and way of sharing.
VARIANTS: list[dict[str, Any]] = [
    *({"solver": method, "decoder_solver": method} for method in METHODS if method != "custom"),
    {"solver": "custom", "tableau": {"a": [["1/3"]], "b": ["1/4", "3/4"]}},
    *({"solver": "rk2", "gamma": gamma} for gamma in ("ones", "learned", "gated", "ema")),
    {"solver": "rk4", "decoder_solver": "rk2", "decoder_gamma": "gated"},
    *({"solver": "rk2", "field": field} for field in ("san/ffn", "san", "ffn", "macaron")),
    {"solver": "rk2", "gamma": "learned", "share_gamma": True, "share_layers": True},
    {"solver": "rk2", "decoder_solver": "rk2", "stage_parameters": "separate"},
    {"norm": "post"},
    {"norm": "post", "init": "admin"},
    {"solver": "rk2", "replicate": "release", "gamma": "learned"},
    {"tie_embeddings": False, "relative_positions": 0},
    {"relative_positions": 3},
]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_every_model_gives_the_same_log_probabilities(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    model = model_of(**settings)
    expected, found = tables(SingleModel(model)), tables(exported(model, tmp_path))
    for one, other in zip(expected, found, strict=True):
        assert other.shape == (6, VOCABULARY)
        assert np.abs(one - other).max() < 1e-4


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("solver", ["euler", "rk4"])
def test_large_matrices_give_the_same_log_probabilities(solver: str, tmp_path: Path) -> None:
    """Matrices of this size are in 8 bits in int8, which changes what leads to a product."""
    model = model_of(noise=0.05, d_model=96, ffn=160, heads=3, solver=solver)
    expected, found = tables(SingleModel(model)), tables(exported(model, tmp_path))
    for one, other in zip(expected, found, strict=True):
        assert np.abs(one - other).max() < 1e-4


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("vocabulary", [61, 64, 1000, 5000])  # the last has two chunks
def test_the_best_are_those_of_torch(vocabulary: int, tmp_path: Path) -> None:
    model = model_of(1, vocabulary)
    for decode in (DecodeConfig(), DecodeConfig(beam=2, no_repeat_ngram=2, min_length=9)):
        expected = beam_search(SingleModel(model), SOURCES, decode, 2)
        found = beam_search(exported(model, tmp_path), SOURCES, decode, 2)
        for one, other in zip(expected, found, strict=True):
            assert [h.tokens for h in one] == [h.tokens for h in other]
            assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


@pytest.mark.usefixtures("engine")
def test_int8_is_close_and_does_not_depend_on_the_batch(tmp_path: Path) -> None:
    model = model_of(2, noise=0.03, d_model=128, ffn=256, heads=4)
    scorer = exported(model, tmp_path, "int8")
    for one, other in zip(tables(SingleModel(model)), tables(scorer), strict=True):
        assert np.abs(np.exp(one) - np.exp(other)).max() < 0.03
    together = beam_search(scorer, SOURCES, DecodeConfig(max_length=6))
    alone = [beam_search(scorer, [source], DecodeConfig(max_length=6))[0] for source in SOURCES]
    assert [h.tokens for (h,) in together] == [h.tokens for (h,) in alone]
    weights = onnx.load(tmp_path / DECODER).graph.initializer
    large = [w for w in weights if np.prod(w.dims) >= 4096 and w.name != "all_ids"]
    assert {w.data_type for w in large} == {onnx.TensorProto.INT8}


def test_products_in_8_bits_are_those_of_rounded_numbers(tmp_path: Path) -> None:
    """Behind a norm one unit for all rows, behind a ReLU one for each; compared with numpy."""
    random = np.random.default_rng(5)
    width, inner = 64, 96
    norm, up, down = torch.nn.LayerNorm(width), Linear(width, inner), Linear(inner, width)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.uniform_(-0.5, 0.5)
        norm.weight[7], norm.bias[7] = 1.5, 0.5
        up.bias.uniform_(-1, 1)
    graph = Tracer(torch.nn.ModuleList([norm, up, down]), Int8())
    with graph, torch.no_grad():
        y = graph.input("y", (B, K, width))
        hidden = up(norm(y))
        graph.output("hidden", hidden)
        graph.output("found", down(torch.relu(hidden)))
    onnx.save(graph.model(), tmp_path / "graph.onnx")
    given = random.standard_normal((3, 2, width)).astype(np.float32)
    given[0, 0, 7] = 60.0  # more than six deviations from the mean of its row
    hidden, found = Session(tmp_path / "graph.onnx").run({"y": given}, ("hidden", "found"))

    gain, offset = (p.detach().numpy() for p in (norm.weight, norm.bias))
    centred = given - given.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + offset
    unit = (6 * np.abs(gain) + np.abs(offset)).max() / 127
    assert (normed > 128 * unit).sum() == 1, "one number is beyond the range, and becomes its end"
    codes = np.clip(np.rint(normed / unit), -128, 127)
    expected = unit * codes @ rounded(up.weight).T + up.bias.detach().numpy()
    # A code may be the next one where a number is half-way between two.
    assert np.abs(hidden - expected).max() < 2 * unit * np.abs(up.weight.detach().numpy()).max()

    positive = np.maximum(hidden, 0)
    units = positive.max(-1, keepdims=True) / 255
    expected = units * np.rint(positive / units) @ rounded(down.weight).T
    expected += down.bias.detach().numpy()
    assert np.abs(found - expected).max() < 1e-3


def rounded(weight: torch.Tensor) -> np.ndarray[Any, Any]:
    """A matrix whose rows have 255 different numbers, the largest of them exact."""
    numbers = weight.detach().numpy()
    units = np.abs(numbers).max(1, keepdims=True) / 127
    return np.rint(numbers / units) * units


def test_a_row_that_a_relu_sets_to_zero_gives_the_bias(tmp_path: Path) -> None:
    down = Linear(96, 64)
    graph = Tracer(down, Int8())
    with graph, torch.no_grad():
        graph.output("found", down(torch.relu(graph.input("x", (B, K, 96)))))
    onnx.save(graph.model(), tmp_path / "graph.onnx")
    given = np.stack([np.full((2, 96), number, np.float32) for number in (-1, 0, 1)])
    (found,) = Session(tmp_path / "graph.onnx").run({"x": given}, ("found",))
    bias = down.bias.detach().numpy()
    assert np.array_equal(found[:2], np.broadcast_to(bias, (2, 2, 64)))
    assert np.abs(found[2] - bias).max() > 0.01


# ---- the directory ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "toy"
    export_run(Run.load(toy_run), path)
    return path


LINES = ["ba be bi", "", "du do", "ba " * 40, "zzz ☃"]


@pytest.mark.usefixtures("engine")
def test_an_export_translates_as_its_run(toy_run: Path, folder: Path) -> None:
    expected, found = Translator.load(toy_run, "cpu"), Translator.load(folder)
    assert found.translate(LINES) == expected.translate(LINES)
    assert Translator.load([folder, folder]).translate(LINES) == expected.translate(LINES)
    for one, other in zip(expected.hypotheses(LINES, 2), found.hypotheses(LINES, 2), strict=True):
        assert [text for text, _ in one] == [text for text, _ in other]


def damage(folder: Path, copy: Path, change: Any) -> str:
    shutil.copytree(folder, copy)
    change(copy)
    with pytest.raises(InputError) as caught:
        Translator.load(copy)
    return str(caught.value)


@pytest.mark.parametrize("name", [ENCODER, DECODER, "config.json", "tokenizer.model"])
def test_a_missing_truncated_or_altered_file_is_refused(
    folder: Path, tmp_path: Path, name: str
) -> None:
    def alter(copy: Path) -> None:
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)

    def truncate(copy: Path) -> None:
        (copy / name).write_bytes((copy / name).read_bytes()[:-7])

    assert name in damage(folder, tmp_path / "a", lambda copy: (copy / name).unlink())
    assert name in damage(folder, tmp_path / "b", alter)
    assert name in damage(folder, tmp_path / "c", truncate)


def test_another_format_is_refused(folder: Path, tmp_path: Path) -> None:
    def change(number: int) -> Callable[[Path], None]:
        def rewrite(copy: Path) -> None:
            text = (copy / EXPORT).read_text()
            changed = text.replace(f'"format": {FORMAT}', f'"format": {number}')
            assert changed != text
            (copy / EXPORT).write_text(changed)

        return rewrite

    assert "install a newer" in damage(folder, tmp_path / "a", change(FORMAT + 1))
    assert "export the run again" in damage(folder, tmp_path / "old", change(FORMAT - 1))
    assert "checksums.json" in damage(
        folder, tmp_path / "b", lambda copy: (copy / "checksums.json").unlink()
    )


def test_a_graph_that_reads_another_file_is_refused(folder: Path, tmp_path: Path) -> None:
    def outside(copy: Path) -> None:
        model = onnx.load(copy / DECODER)
        weight = model.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="../../etc/passwd")
        (copy / DECODER).write_bytes(model.SerializeToString())
        (copy / "checksums.json").unlink()
        write_manifest(copy)

    assert "another file" in damage(folder, tmp_path / "a", outside)


def test_equal_models_are_equal_files(folder: Path, toy_run: Path, tmp_path: Path) -> None:
    export_run(Run.load(toy_run), tmp_path / "again")
    for file in folder.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


def test_a_graph_that_could_run_for_ever_is_refused(folder: Path, tmp_path: Path) -> None:
    def looping(copy: Path) -> None:
        model = onnx.load(copy / DECODER)
        body = onnx.helper.make_graph([], "body", [], [])
        model.graph.node.add().CopyFrom(onnx.helper.make_node("Loop", ["", ""], ["x"], body=body))
        (copy / DECODER).write_bytes(model.SerializeToString())
        (copy / "checksums.json").unlink()
        write_manifest(copy)

    assert "has the operator 'Loop'" in damage(folder, tmp_path / "a", looping)


def test_a_damaged_matrix_is_refused(tmp_path: Path, toy_run: Path) -> None:
    export_run(Run.load(toy_run), tmp_path / "a", "int8")
    content = bytearray((tmp_path / "a" / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (tmp_path / "a" / WEIGHTS).write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        Translator.load(tmp_path / "a")


def test_an_export_never_overwrites(toy_run: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="already exists"):
        export_run(Run.load(toy_run), folder)


@pytest.mark.usefixtures("engine")
def test_a_language_model_is_exported(tmp_path: Path) -> None:
    model = model_of(encoder_layers=0, solver="rk2")
    scorer = exported(model, tmp_path)
    assert not (tmp_path / ENCODER).exists()
    for one, other in zip(tables(SingleModel(model)), tables(scorer), strict=True):
        assert np.abs(one - other).max() < 1e-4


def test_a_model_that_the_kernels_do_not_know_has_graphs_only(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(self: object, name: str, *arguments: object, **more: object) -> int:
        raise Unknown(name)

    monkeypatch.setattr(Recorder, "_record", unknown)
    export_run(Run.load(toy_run), tmp_path / "toy")
    assert not (tmp_path / "toy" / PROGRAM).exists()
    found = Translator.load(tmp_path / "toy").translate(LINES)
    assert found == Translator.load(toy_run, "cpu").translate(LINES)


@pytest.mark.skipif(bool(obstacle()), reason=obstacle())
def test_the_kernels_need_no_onnxruntime(folder: Path) -> None:
    code = (
        "import sys; sys.modules['onnxruntime'] = None; from kutta import Translator;"
        "print(Translator.load(sys.argv[1]).translate(['ba be bi'])[0])"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    assert done.stdout.strip() == Translator.load(folder).translate(["ba be bi"])[0], done.stderr


def test_info_says_what_computes(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "a")
    (tmp_path / "a" / PROGRAM).unlink()
    write_manifest(tmp_path / "a")
    reason = obstacle()
    engine = f"onnxruntime ({reason})" if reason else "kernels"
    assert describe(folder, [])["computed_by"] == engine
    told = describe(tmp_path / "a", [])["computed_by"]
    assert told == "onnxruntime (the model has no program)"


# ---- workers ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("engine")
def test_workers_share_one_model_and_keep_the_order(folder: Path) -> None:
    lines = [f"{'ba be bi bo du'[: 2 + n % 12]}" for n in range(90)]
    expected = Translator.load(folder, workers=1).translate(lines)
    several = Translator.load(folder, workers=3)
    assert several.translate(lines) == expected
    assert list(several.translate_stream(lines)) == expected
    assert [model.exported.path for model in several.models] == [folder]
    stream = several.translate_stream(lines)
    assert next(stream) == expected[0]
    stream.close()  # type: ignore[attr-defined]  # the workers end with it


def test_a_line_alone_uses_all_cores_until_several_come(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported_model, "obstacle", lambda _: "one core is enough for them")
    monkeypatch.setattr(workers, "cores", lambda: 3)
    translator = Translator.load(folder)
    used = list[tuple[Any, list[int]]]()
    for lines in (["ba"], ["be"], ["ba", "be"], ["ba"]):
        translator.translate(lines)
        (model,) = translator.models
        used.append((translator.arrangement, [s.threads for s in model.engine.sessions]))
    single, several = (Arrangement(1, 3), [3, 3]), (Arrangement(3, 1), [1, 1])
    assert used == [single, single, several, several]


@pytest.mark.usefixtures("engine")
def test_an_error_in_a_worker_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, *arguments: object) -> None:
        raise MemoryError("no memory")

    broken = Translator.load(folder, workers=2)
    broken.translate(["ba"])
    monkeypatch.setattr(Session, "run", fail)
    monkeypatch.setattr(native, "address", fail)
    with pytest.raises(MemoryError, match="no memory"):
        broken.translate(["ba", "be"])


@pytest.mark.parametrize(("options", "sentence"), [({"workers": 0}, "workers"), ({}, "cuda")])
def test_what_an_export_cannot_do_is_said(
    folder: Path, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        Translator.load(folder, "auto" if options else "cuda", **options)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("vocabulary", [96, 101, 4200])  # padded, and in several chunks
def test_graphs_read_their_matrices_from_one_file(
    tmp_path: Path, vocabulary: int, precision: str
) -> None:
    """Each matrix is there once; in 8 bits it differs from that in fp32 by rounding only."""
    model = model_of(vocabulary=vocabulary, noise=0.01, d_model=64, ffn=96)
    write_model(model, tmp_path, precision, "", "step:1")
    stored = {one.name: one for one in read_stored(tmp_path / WEIGHTS)}
    assert len(stored) > 10
    used: set[str] = set()
    for name in (ENCODER, DECODER):
        graph = onnx.load(tmp_path / name, load_external_data=False).graph
        for tensor in graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                place = {entry.key: entry.value for entry in tensor.external_data}
                matrix = stored[tensor.name.removeprefix("stored.").partition("[")[0]]
                begin, end = int(place["offset"]), int(place["offset"]) + int(place["length"])
                assert place["location"] == WEIGHTS
                assert matrix.offset <= begin < end <= matrix.offset + matrix.numbers.nbytes
                used.add(matrix.name)
            elif len(tensor.dims) == 2 and 1 not in tensor.dims and np.prod(tensor.dims) >= 4096:
                assert not onnx.numpy_helper.to_array(tensor).any(), "only padding is left"
        assert asked_by(tmp_path / name).files == {WEIGHTS}
    assert used == stored.keys()
    restored, original = read_tensors(tmp_path / WEIGHTS), own_tensors(model)
    for name, tensor in original.items():
        most = float(tensor.detach().abs().max()) / 250 if precision == "int8" else 0
        assert torch.allclose(restored[name], tensor, rtol=0, atol=most)

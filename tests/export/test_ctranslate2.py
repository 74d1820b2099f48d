"""Models for CTranslate2, checked by translating with CTranslate2 itself."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from kutta import Translator
from kutta.config import Config
from kutta.config.model import ModelConfig
from kutta.data.tokenizer import BOS, EOS, Pretokenized
from kutta.errors import InputError
from kutta.export.ctranslate2 import export_ctranslate2, obstacle, one_by_one, vocabulary
from kutta.model import TranslationModel
from kutta.model.weights import own_tensors, write_tensors
from kutta.runs import Run, open_run, prepare_run
from kutta.training.run import train
from tests.conftest import toy_config, write_toy_corpus
from tests.test_cli import is_one_sentence, kutta

EULER = {"solver": "euler", "gamma": "tableau"}
RK2 = {"solver": "rk2", "gamma": "ones"}
# As CTranslate2 is to search like Kutta; it normalises without the marks it may not write.
SEARCH: dict[str, Any] = {
    "return_end_token": True,
    "return_scores": True,
    "suppress_sequences": [["<pad>"], ["<s>"]],
}


@pytest.fixture(scope="session")
def engine() -> Any:
    return pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the prepared text of a run, to which weights are added. Read only."""
    folder = tmp_path_factory.mktemp("ctranslate2")
    write_toy_corpus(folder / "text")
    prepare_run(open_run(toy_config(folder)))
    return folder


def random_run(prepared: Path, folder: Path, **model: Any) -> Run:
    """A run with random weights, none of them zero: norms, biases and positions too."""
    folder.mkdir()
    config = toy_config(prepared, model=EULER | {"encoder_layers": 2} | model)
    (folder / "config.json").write_text(config.to_json(), encoding="utf-8")
    source = prepared / "run" / "tokenizer.model"
    (folder / "tokenizer.model").write_bytes(source.read_bytes())
    run = Run.load(folder)
    torch.manual_seed(1)
    made = run.build_model()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    write_tensors(own_tensors(made), run.final_weights)
    return run


def log_probabilities(run: Run, source: list[int], target: list[int]) -> torch.Tensor:
    """What the model says of each token of a target and of its end, all at once."""
    model = run.load_model()
    assert isinstance(model, TranslationModel)
    with torch.inference_mode():
        hidden = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
        each = model.project(hidden[:, 0]).log_softmax(dim=-1)
    return each.gather(1, torch.tensor([*target, EOS])[:, None])[:, 0]


@pytest.mark.parametrize(
    "model",
    [
        EULER,
        EULER | {"relative_positions": 0},
        EULER | {"relative_positions": 2, "field": "san/ffn", "share_layers": True},
        EULER | {"norm": "post", "relative_positions": 0},
        EULER | {"tie_embeddings": False, "gamma": "ones"},
        RK2,
        RK2 | {"decoder_solver": "rk2", "decoder_gamma": "ones"},
        RK2 | {"stage_parameters": "separate", "relative_positions": 0},
        {"solver": "custom", "gamma": "ones", "tableau": {"a": [[1], [1, 1]], "b": [0, 0, 1]}},
    ],
    ids=lambda model: " ".join(f"{key}={value}" for key, value in model.items()),
)
def test_log_probabilities_are_those_of_kutta(
    prepared: Path, tmp_path: Path, engine: Any, model: dict[str, Any]
) -> None:
    run = random_run(prepared, tmp_path / "run", **model)
    export_ctranslate2(run, tmp_path / "model")
    translator = engine.Translator(str(tmp_path / "model"), intra_threads=1)
    tokens = run.tokenizers.source.tokens
    # Longer than the clipping distance, and of several lengths, so that some are padded.
    pairs = [([20 + i for i in range(n)], [40 + 2 * i for i in range(24 - n)]) for n in (1, 9, 21)]
    pieces = [[[tokens[i] for i in side] for side in pair] for pair in pairs]
    scored = translator.score_batch([s for s, _ in pieces], [t for _, t in pieces])
    for (source, target), found in zip(pairs, scored, strict=True):
        expected = log_probabilities(run, source, target)
        torch.testing.assert_close(torch.tensor(found.log_probs), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("quantization", ["int8", "bfloat16"])
def test_quantised_weights_are_near_and_smaller(
    prepared: Path, tmp_path: Path, engine: Any, quantization: str
) -> None:
    run = random_run(prepared, tmp_path / "run")
    sizes: dict[str, int] = {}
    for name in ("float32", quantization):
        export_ctranslate2(run, tmp_path / name, name)
        sizes[name] = (tmp_path / name / "model.bin").stat().st_size
    assert sizes[quantization] < 0.9 * sizes["float32"]
    translator = engine.Translator(str(tmp_path / quantization), intra_threads=1)
    tokens, source, target = run.tokenizers.source.tokens, [20, 21, 22], [40, 41]
    found = translator.score_batch([[tokens[i] for i in source]], [[tokens[i] for i in target]])
    near = torch.tensor(found[0].log_probs) - log_probabilities(run, source, target)
    assert 0 < near.abs().max() < 0.3


@pytest.fixture(scope="module", params=["euler", pytest.param("rk2", marks=pytest.mark.slow)])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has learned to end its translations."""
    folder = tmp_path_factory.mktemp("trained")
    write_toy_corpus(folder / "text")
    quick = {"max_steps": 90, "save_every": 90, "lr": 0.015, "warmup": 30}
    config: Config = toy_config(
        folder, model=EULER if request.param == "euler" else RK2, train=quick
    )
    return Run.load(train(config, console=Console(quiet=True)).run)


def test_translations_of_a_test_set_are_identical(
    trained: Run, tmp_path: Path, engine: Any
) -> None:
    """With the files of the folder only, as the documentation says."""
    import sentencepiece

    assert kutta("export", trained.path, tmp_path / "model", "--to", "ctranslate2").code == 0
    lines = (trained.path.parent / "text" / "train.xx").read_text("utf-8").splitlines()
    model = str(tmp_path / "model" / "tokenizer.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    sources = pieces.encode(lines, out_type=str)
    translator = engine.Translator(str(tmp_path / "model"), intra_threads=1)
    found = translator.translate_batch(
        sources, beam_size=4, length_penalty=0.6, max_batch_size=32, **SEARCH
    )
    theirs = [pieces.decode([p for p in one.hypotheses[0] if p != "</s>"]) for one in found]
    ours = Translator.load(trained.path).translate(lines, beam=4, length_penalty=0.6)
    assert len(set(ours)) > 10  # it has learned to read its source
    assert ours == theirs


# --- what is refused


@pytest.mark.parametrize(
    ("model", "setting"),
    [
        ({"encoder_layers": 0}, "model.encoder_layers = 0"),
        ({"solver": "rk4"}, "model.solver = 'rk4'"),
        ({"solver": "rk2", "gamma": "tableau"}, "model.gamma = 'tableau'"),
        ({"solver": "rk2", "gamma": "learned"}, "model.gamma = 'learned'"),
        ({"solver": "euler", "gamma": "learned"}, "model.gamma = 'learned'"),
        (RK2 | {"field": "san/ffn"}, "model.field = 'san/ffn'"),
        (RK2 | {"field": "ffn"}, "model.field = 'ffn'"),
        (EULER | {"field": "macaron"}, "model.field = 'macaron'"),
        (EULER | {"decoder_solver": "dlcl"}, "model.decoder_solver = 'dlcl'"),
        (EULER | {"replicate": "release"}, "model.replicate = 'release'"),
        (EULER | {"norm": "post"}, "model.relative_positions = 8"),
        (EULER | {"norm": "post", "init": "admin"}, "model.init = 'admin'"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_the_setting_that_does_not_fit_is_named(model: dict[str, Any], setting: str) -> None:
    assert setting in obstacle(ModelConfig.model_validate(model))


def test_a_method_that_does_not_fit_is_one_sentence(toy_run: Path, tmp_path: Path) -> None:
    answer = kutta("export", toy_run, tmp_path / "model", "--to", "ctranslate2")
    is_one_sentence(answer, "model.solver = 'rk2'", "model.gamma = 'learned'", "without --to")
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_one_sentence(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = random_run(prepared, tmp_path / "run").path
    words = ("export", run, tmp_path / "model", "--to", "ctranslate2")
    is_one_sentence(kutta(*words, "--quantization", "int4"), "int4", "int8_float32")
    (tmp_path / "model").mkdir()
    is_one_sentence(kutta(*words), "exists already")
    monkeypatch.setitem(sys.modules, "ctranslate2.converters", None)
    is_one_sentence(kutta(*words), "kutta[ctranslate2]")


def test_a_word_that_looks_like_a_mark_is_refused() -> None:
    assert vocabulary(Pretokenized(["a", "b"])) == ["<pad>", "<unk>", "<s>", "</s>", "a", "b"]
    with pytest.raises(InputError, match="the word <s>"):
        vocabulary(Pretokenized(["a", "<s>"]))


def test_joined_projections_are_put_one_by_one() -> None:
    """Two heads of width 2, query, key and value: head by head to projection by projection."""
    rows = torch.arange(12)
    assert one_by_one(rows, heads=2, joined=3).tolist() == [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]

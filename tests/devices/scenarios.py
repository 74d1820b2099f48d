"""What is run on a CPU and on a fake GPU; prints what came out as JSON: {name: [cpu, gpu]}."""

import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from fake_device import CPU, GPU, FakeDevice

from kutta.config import DecodeConfig, ModelConfig, TrainConfig
from kutta.data.batches import BatchStream, PairList
from kutta.data.store import Store
from kutta.data.tokenizer import EOS, PAD
from kutta.model import LanguageModel, TextModel, TranslationModel
from kutta.model.build import build_model
from kutta.model.decoding import Embedding
from kutta.training.loop import fit, make_trainer
from kutta.training.validate import held_out_loss
from kutta.translate.sampling import Sampling, sample
from kutta.translate.scorer import Continuation, Ensemble, SingleModel
from kutta.translate.search import beam_search

sys.path.append(str(Path(__file__).parents[2]))  # run as a program, not by pytest
from tests.data.writing import write_store

VOCABULARY = 12
PAIRS = [([4 + n % 7] * (2 + n % 5), [5 + n % 6, 4] * (1 + n % 3)) for n in range(12)]
TRAIN = TrainConfig(batch_tokens=60, max_steps=2, lr=0.01, warmup=2, clip_norm=0.5, accumulate=2)
SOURCE = torch.tensor([[4, 5, 6, EOS], [7, EOS, PAD, PAD], [8, 9, EOS, PAD]])
PROMPT = torch.tensor([[4, 5], [7, 6]])
Answer = Any


def model_of(kind: str, **settings: Any) -> TextModel:
    """An untrained model without dropout, so that both devices compute the same."""
    sizes = {"d_model": 8, "ffn": 16, "heads": 2, "decoder_layers": 1, "relative_positions": 2}
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}
    layers = {"encoder_layers": 1 if kind == "translation" else 0}
    torch.manual_seed(1)
    config = ModelConfig.model_validate(sizes | quiet | layers | settings)
    model = build_model(config, VOCABULARY, VOCABULARY, shared=True)
    with torch.no_grad():
        model.output_weight[EOS] *= 2  # so that hypotheses end before their limit
    return model


def pairs_of(model: TextModel) -> list[Any]:
    return [([] if isinstance(model, LanguageModel) else s, t) for s, t in PAIRS]


def train(model: TextModel, device: torch.device) -> Answer:
    """Some updates: forward, loss, backward, clipping, Adam."""
    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder) / "store", pairs_of(model), VOCABULARY)
        stream = BatchStream(Store.open(Path(folder) / "store"), TRAIN.batch_tokens, seed=1)
        trainer = make_trainer(model, TRAIN, device)
        steps = [[step.loss, step.grad_norm] for step in fit(trainer, stream, TRAIN)]
    assert {p.device for p in model.parameters()} == {device}
    assert {s["exp_avg"].device for s in trainer.optimizer.state.values()} == {device}
    return steps


def validate(model: TextModel, device: torch.device) -> Answer:
    found = held_out_loss(model.to(device), PairList(pairs_of(model)), TRAIN, device)
    return [found.loss, found.nll, found.tokens]


def search(model: TextModel, device: torch.device) -> Answer:
    """Beam search with all rules, of a translation model or of a language model's prompts."""
    decode = DecodeConfig(beam=2, min_length=1, no_repeat_ngram=2, max_length=4)
    scorer, source = started(model, device)
    found = beam_search(scorer, source, decode, n_best=2)
    return [[[h.tokens, h.score] for h in hypotheses] for hypotheses in found]


def draw(model: TextModel, device: torch.device) -> Answer:
    scorer, source = started(model, device)
    sampling = Sampling(temperature=0.9, top_k=6, top_p=0.9, seed=3)
    drawn = sample(scorer, source, sampling, DecodeConfig(max_length=4, no_repeat_ngram=2))
    return [[h.tokens, h.score] for h in drawn]


def ensemble(model: TextModel, device: torch.device) -> Answer:
    assert isinstance(model, TranslationModel)
    model = model.to(device).eval()
    found = beam_search(
        Ensemble([model, model]), SOURCE.to(device), DecodeConfig(beam=2, max_length=3)
    )
    return [[h.tokens, h.score] for (h,) in found]


def started(model: TextModel, device: torch.device) -> tuple[Any, torch.Tensor]:
    model = model.to(device).eval()
    if isinstance(model, LanguageModel):
        return Continuation(model), PROMPT.to(device)
    assert isinstance(model, TranslationModel)
    return SingleModel(model), SOURCE.to(device)


def misplaced(model: TextModel, device: torch.device) -> Answer:
    """A mistake that is there on purpose: positions that are always made on the CPU."""
    right = Embedding.forward
    Embedding.forward = lambda self, ids, start=0: (
        right(self, ids, start) + torch.ones(ids.shape[1], 1, 1)
    )
    try:
        return train(model, device)
    finally:
        Embedding.forward = right


def misplaced_rows(model: TextModel, device: torch.device) -> Answer:
    """Another one, where the size of the result depends on values."""
    numbers = torch.ones(3, device=device)
    return len(torch.masked_select(numbers, torch.tensor([True, False, True])))


RK4 = {"solver": "rk4", "gamma": "learned"}
RK2_DECODER = {"decoder_solver": "rk2"}
GATED = {"solver": "rk2", "gamma": "gated"}
Scenario = tuple[Callable[..., Answer], str, dict[str, Any]]
SCENARIOS: dict[str, Scenario] = {  # what is done, with which kind of model and settings of it
    "train, translation": (train, "translation", RK4),
    "train, language": (train, "language", RK4),
    "train, gated": (train, "translation", GATED),
    "train, pc2": (train, "translation", {"solver": "pc2", "relative_positions": 0}),
    "validate, translation": (validate, "translation", RK4),
    "validate, language": (validate, "language", RK4),
    "search, translation": (search, "translation", RK2_DECODER),
    "search, language": (search, "language", RK4),
    "search, ensemble": (ensemble, "translation", {}),
    "sample, translation": (draw, "translation", RK2_DECODER),
    "sample, language": (draw, "language", RK4),
    "planted, a sum": (misplaced, "translation", {}),
    "planted, a choice of rows": (misplaced_rows, "translation", {}),
}


def outcome(scenario: Scenario, device: torch.device) -> Answer:
    """What came out, or how it failed; the model is made on the CPU, as everywhere."""
    run, kind, settings = scenario
    model = model_of(kind, **settings)
    try:
        # Backward passes in this thread: those of devices have threads that outlive Python.
        with (
            FakeDevice() if device == GPU else nullcontext(),
            torch.autograd.set_multithreading_enabled(False),
        ):
            return run(model, device)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(SCENARIOS)
    found = {n: [outcome(SCENARIOS[n], device) for device in (CPU, GPU)] for n in names}
    print(json.dumps(found))

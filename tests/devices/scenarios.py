"""What is run on the CPU and on a fake device; prints both results as JSON: {name: [cpu, fake]}."""

import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fake_device import CPU, CUDA, GPU, FakeDevice, arrays, cuda_is_there

from kutta.config import DecodeConfig, ModelConfig, TrainConfig
from kutta.data.batches import BatchStream
from kutta.data.store import Store
from kutta.data.tokenizer import EOS, PAD
from kutta.model import LanguageModel, TextModel, TranslationModel
from kutta.model.attention import by_fused_kernel
from kutta.model.decoding import Embedding
from kutta.model.initialise import profile_admin
from kutta.model.transformer import build_model
from kutta.training.loop import fit, make_trainer
from kutta.training.validate import held_out_loss
from kutta.translate.pytorch import SingleModel, scorer_of
from kutta.translate.sampling import Sampling, sample
from kutta.translate.scorer import Continuation
from kutta.translate.search import beam_search

sys.path.append(str(Path(__file__).parents[2]))  # run as a program, not by pytest
from tests.data.writing import write_store

VOCABULARY = 12
PAIRS = [([4 + n % 7] * (2 + n % 5), [5 + n % 6, 4] * (1 + n % 3)) for n in range(12)]
TRAIN = TrainConfig(batch_tokens=60, max_steps=2, lr=0.01, warmup=2, clip_norm=0.5, accumulate=2)
SOURCE = torch.tensor([[4, 5, 6, EOS], [7, EOS, PAD, PAD], [8, 9, EOS, PAD]])
SENTENCES = [[4, 5, 6, EOS], [7, EOS], [8, 9, EOS]]  # those of SOURCE
PROMPTS = [[4, 5], [7, 6]]
Answer = Any


def model_of(kind: str, **settings: Any) -> TextModel:
    """An untrained model, without dropout unless the settings say so."""
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


def train(model: TextModel, device: torch.device, config: TrainConfig = TRAIN) -> Answer:
    """Some updates: forward, loss, backward, clipping, Adam."""
    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder) / "store", pairs_of(model), VOCABULARY)
        stream = BatchStream(Store.open(Path(folder) / "store"), config.batch_tokens, seed=1)
        trainer = make_trainer(model, config, device)
        steps = [[step.loss, step.grad_norm] for step in fit(trainer, stream, config)]
    assert {p.device for p in model.parameters()} == {device}
    assert {s["exp_avg"].device for s in trainer.optimizer.state.values()} == {device}
    return steps


def in_bf16(run: Callable[..., Answer]) -> Callable[..., Answer]:
    """The same scenario under autocast, whose linear layers have to compute in 16 bits."""

    def under_autocast(model: TextModel, device: torch.device) -> Answer:
        seen: set[torch.dtype] = set()
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(lambda module, inputs, out: seen.add(out.dtype))
        answer = run(model, device, TRAIN.model_copy(update={"precision": "bf16"}))
        assert seen == {torch.bfloat16}
        return answer

    return under_autocast


def train_recomputing(model: TextModel, device: torch.device) -> Answer:
    """The CPU keeps all activations instead, so both have to draw the same dropout twice."""
    return train(model, device, TRAIN.model_copy(update={"recompute": device != CPU}))


def validate(model: TextModel, device: torch.device, config: TrainConfig = TRAIN) -> Answer:
    found = held_out_loss(model.to(device), pairs_of(model), config, device)
    return [found.loss, found.nll, found.tokens]


def profile(model: TextModel, device: torch.device) -> Answer:
    """ADMIN's first batch, which sets the residual weights before training."""
    model = model.to(device)
    profile_admin(model, SOURCE.to(device), SOURCE.to(device))
    omegas = [p for name, p in model.named_parameters() if name.endswith("omega")]
    assert omegas
    return [omega[0].item() for omega in omegas]


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
    found = beam_search(scorer_of([model, model]), SENTENCES, DecodeConfig(beam=2, max_length=3))
    return [[h.tokens, h.score] for (h,) in found]


def started(model: TextModel, device: torch.device) -> tuple[Any, list[list[int]]]:
    model = model.to(device).eval()
    if isinstance(model, LanguageModel):
        return Continuation(SingleModel(model)), PROMPTS
    assert isinstance(model, TranslationModel)
    return SingleModel(model), SENTENCES


@contextmanager
def misplaced_positions() -> Generator[None]:
    """A mistake made on purpose: positions that are always on the CPU."""
    right = Embedding.forward

    def wrong(self: Embedding, ids: torch.Tensor, start: int = 0) -> torch.Tensor:
        return right(self, ids, start) + torch.ones(ids.shape[1], 1, 1)

    with mock.patch.object(Embedding, "forward", wrong):
        yield


def misplaced(run: Callable[..., Answer]) -> Callable[..., Answer]:
    """The same scenario with that mistake."""

    def with_mistake(model: TextModel, device: torch.device) -> Answer:
        with misplaced_positions():
            return run(model, device)

    return with_mistake


def misplaced_rows(model: TextModel, device: torch.device) -> Answer:
    """Another mistake, where the size of the result depends on values."""
    numbers = torch.ones(3, device=device)
    return len(torch.masked_select(numbers, torch.tensor([True, False, True])))


@dataclass(frozen=True)
class Scenario:
    """What is done, on which fake device, with which kind of model and which settings of it."""

    run: Callable[..., Answer]
    device: torch.device
    kind: str = "translation"
    model: dict[str, Any] = field(default_factory=dict)


RK4 = {"solver": "rk4", "gamma": "learned"}
RK2_DECODER = {"decoder_solver": "rk2"}
GATED = {"solver": "rk2", "gamma": "gated"}
PC2 = {"solver": "pc2", "relative_positions": 0}
DROPOUT = {"dropout": 0.2, "attention_dropout": 0.2, "relu_dropout": 0.2}
LAYER_DROP = {"encoder_layers": 4, "decoder_layers": 4, "layer_drop": 0.5}
ADMIN = {"init": "admin", "norm": "post", "solver": "euler", "encoder_layers": 2}
SCENARIOS = {
    "train, translation": Scenario(train, GPU, model=RK4),
    "train, language": Scenario(train, GPU, "language", RK4),
    "train, gated": Scenario(train, GPU, model=GATED),
    "train, pc2": Scenario(train, GPU, model=PC2),
    "train, dropout": Scenario(train, GPU, model=RK4 | DROPOUT),
    "train, recompute": Scenario(train_recomputing, GPU, model=RK4 | DROPOUT),
    "train, layer drop": Scenario(train, GPU, model=LAYER_DROP),
    "train, bf16": Scenario(in_bf16(train), GPU, model=RK4),
    "profile, admin": Scenario(profile, CUDA, model=ADMIN),
    "validate, translation": Scenario(validate, CUDA, model=RK4),
    "validate, language": Scenario(validate, CUDA, "language", RK4),
    "validate, bf16": Scenario(in_bf16(validate), CUDA, model=RK4),
    "search, translation": Scenario(search, CUDA, model=RK2_DECODER),
    "search, language": Scenario(search, CUDA, "language", RK4),
    "search, ensemble": Scenario(ensemble, CUDA),
    "sample, translation": Scenario(draw, CUDA, model=RK2_DECODER),
    "sample, language": Scenario(draw, CUDA, "language", RK4),
    "planted, training": Scenario(misplaced(train), GPU),
    "planted, validation": Scenario(misplaced(validate), CUDA),
    "planted, search": Scenario(misplaced(search), CUDA),
    "planted, sampling": Scenario(misplaced(draw), CUDA),
    "planted, a choice of rows": Scenario(misplaced_rows, CUDA),
}


@contextmanager
def kernels_of_a_gpu() -> Generator[None]:
    """The dropout and attention of a GPU on the CPU, so that both draw the same."""
    with (
        mock.patch("kutta.model.dropout._stock", return_value=True),
        mock.patch("kutta.model.attention.by_products", by_fused_kernel),
    ):
        yield


def outcome(scenario: Scenario, device: torch.device) -> Answer:
    """What came out, or how it failed; the model is made on the CPU, as everywhere."""
    model = model_of(scenario.kind, **scenario.model)
    draws = scenario.model.keys() >= DROPOUT.keys()
    reference = kernels_of_a_gpu() if draws else nullcontext()
    place = reference if device == CPU else FakeDevice()
    try:
        # Backward passes in this thread: those of devices have threads that outlive Python.
        threads = torch.autograd.set_multithreading_enabled(False)
        with place, arrays(), cuda_is_there(), threads:
            return scenario.run(model, device)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(SCENARIOS)
    chosen = {name: SCENARIOS[name] for name in names}
    print(json.dumps({n: [outcome(s, CPU), outcome(s, s.device)] for n, s in chosen.items()}))

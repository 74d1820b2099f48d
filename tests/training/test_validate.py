"""What a validation says of a model, against cross-entropies and scores computed here."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from rich.console import Console
from torch.nn import functional

from kutta.config import Config
from kutta.data.tokenizer import BOS, EOS, Pretokenized
from kutta.metrics import Score
from kutta.model import TextModel
from kutta.runs import Run, open_run
from kutta.training import session
from kutta.training.run import train
from kutta.training.validate import Validation, held_out_loss, improves, word_perplexity
from kutta.translate.translator import Translator

Configure = Callable[..., Config]
Assemble = Callable[[Config], Any]
CPU = torch.device("cpu")
DROPOUT = ("model.dropout=0.5", "model.attention_dropout=0.5", "model.relu_dropout=0.5")


Pairs = list[tuple[list[int], list[int]]]


def validation_pairs(config: Config) -> Pairs:
    """The validation text of a run, read and encoded here."""
    tokenizers, folder = open_run(config).tokenizers, Path(config.data.dir)
    sources = (folder / "valid.aa").read_text().splitlines()
    targets = (folder / "valid.bb").read_text().splitlines()
    return [
        (tokenizers.source.encode(source), tokenizers.target.encode(target))
        for source, target in zip(sources, targets, strict=True)
    ]


def cross_entropies(model: TextModel, pairs: Pairs, smoothing: float) -> tuple[float, float, int]:
    """Smoothed sum, plain sum and tokens, one sentence after another, without dropout."""
    model.eval()
    smoothed = plain = 0.0
    tokens = 0
    for source, target in pairs:
        ids = torch.tensor([[BOS, *target]])
        hidden = model(torch.tensor([[*source, EOS]]), ids)
        logits = (hidden @ model.output_weight.t())[:, 0].detach()
        wanted = torch.tensor([*target, EOS])
        plain += float(functional.cross_entropy(logits, wanted, reduction="sum"))
        smoothed += float(
            functional.cross_entropy(logits, wanted, reduction="sum", label_smoothing=smoothing)
        )
        tokens += len(wanted)
    return smoothed, plain, tokens


@pytest.mark.parametrize("batch_tokens", [20, 160])
def test_the_loss_is_the_mean_per_token_of_the_whole_store_without_dropout(
    configure: Configure, assemble: Assemble, batch_tokens: int
) -> None:
    """However many batches it takes, and though the model comes from training, dropout on."""
    config = configure(*DROPOUT, "train.label_smoothing=0.2")
    model = assemble(config).trainer.model.train()
    store = open_run(config).valid_store()
    pairs = validation_pairs(config)
    settings = config.train.model_copy(update={"batch_tokens": batch_tokens})
    found = held_out_loss(model, store, settings, CPU)
    smoothed, plain, tokens = cross_entropies(model, pairs, smoothing=0.2)
    assert found.tokens == tokens
    assert found.loss == pytest.approx(smoothed / tokens, rel=1e-5)
    assert found.nll == pytest.approx(plain / tokens, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(plain / tokens), rel=1e-5)
    assert found.bleu is None


def test_validation_computes_in_the_precision_of_training(
    configure: Configure, assemble: Assemble
) -> None:
    config = configure()
    model = assemble(config).trainer.model
    store = open_run(config).valid_store()
    full = held_out_loss(model, store, config.train, CPU)
    half = config.train.model_copy(update={"precision": "bf16"})
    rounded = held_out_loss(model, store, half, CPU)
    assert rounded.nll != full.nll
    assert rounded.nll == pytest.approx(full.nll, rel=0.02)


def test_what_is_on_record_of_a_step_is_the_loss_of_its_checkpoint_without_dropout(
    configure: Configure, silent: Console
) -> None:
    config = configure(*DROPOUT, "train.max_steps=8")
    train(config, console=silent)
    run = Run.load(config.run)
    records = [record for record in run.records() if record["kind"] == "valid"]
    assert [record["step"] for record in records] == [4, 8]
    pairs = validation_pairs(config)
    for checkpoint, record in zip(run.checkpoints(), records, strict=True):
        model = Run.load(checkpoint.path).load_model()
        _, plain, tokens = cross_entropies(model, pairs, smoothing=0.0)
        assert record["nll"] == pytest.approx(plain / tokens, rel=1e-5)
        assert record["perplexity"] == pytest.approx(math.exp(plain / tokens), rel=1e-5)


def test_validation_bleu_is_that_of_greedy_translations_of_the_validation_text(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, silent: Console
) -> None:
    """Beam 1, and every other option of the search as the config has it."""
    made: list[Translator] = []
    asked: list[list[str]] = []

    class Recorded(Translator):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

        def translate(self, lines: Any, **options: Any) -> list[str]:
            assert not options
            assert not any(model.training for model in self.models)
            asked.append(list(lines))
            return ["dogo findso cato treeo boato", *super().translate(lines)[1:]]

    monkeypatch.setattr(session, "Translator", Recorded)
    options = ("decode.beam=3", "decode.length_penalty=1.5", "decode.max_length=9")
    more = ("decode.min_length=2", "decode.no_repeat_ngram=2", "data.max_source=7")
    config = configure("train.valid_bleu=true", "train.max_steps=4", *options, *more, *DROPOUT)
    train(config, console=silent)
    (translator,), (lines,) = made, asked
    assert translator.config.model_dump() == config.decode.model_dump() | {"beam": 1}
    assert translator.max_source == 7
    folder = Path(config.data.dir)
    assert lines == (folder / "valid.aa").read_text().splitlines()
    references = (folder / "valid.bb").read_text().splitlines()
    run = Run.load(config.run)
    (record,) = [record for record in run.records() if record["kind"] == "valid"]
    monkeypatch.undo()
    model = Run.load(run.checkpoints()[-1].path).load_model()
    greedy = config.decode.changed(beam=1)
    again = Translator([model], run.tokenizers, greedy, CPU, max_source=7).translate(lines)  # type: ignore[list-item]
    expected = sacrebleu.corpus_bleu(
        ["dogo findso cato treeo boato", *again[1:]],
        [references],
        tokenize="none",
        smooth_method="none",
        force=True,
    )
    assert record["bleu"] == pytest.approx(expected.score)


# ---- perplexity of words --------------------------------------------------------------------


@pytest.fixture
def language_model(
    configure: Configure, assemble: Assemble
) -> tuple[Config, TextModel, Pretokenized]:
    config = configure("data.source=''", "model.encoder_layers=0", "model.solver=rk2")
    bench = assemble(config)
    tokenizer = open_run(config).tokenizers.target
    assert isinstance(tokenizer, Pretokenized)
    return config, bench.trainer.model, tokenizer


def test_unknown_words_are_counted_and_a_line_longer_than_a_batch_is_scored(
    language_model: tuple[Config, TextModel, Pretokenized],
) -> None:
    config, model, tokenizer = language_model
    lines = ["dogo " * 199 + "dogo", "zebra seeso zebra", ""]  # 203 words, 2 unknown, 3 ends
    score = word_perplexity(model, tokenizer, lines, config.train, CPU)
    assert config.train.batch_tokens < 201
    pairs: Any = [([], tokenizer.encode(line)) for line in lines]
    total = 0.0
    for _, target in pairs:
        text = torch.tensor([[BOS, *target]])
        logits = model.project(model(text[:, :0], text))[:, 0].detach()
        wanted = torch.tensor([*target, EOS])
        total += float(functional.cross_entropy(logits, wanted, reduction="sum"))
    assert score.value == pytest.approx(math.exp(total / 206), rel=1e-5)
    per_token = math.exp(total / 206)  # a word is a token here
    assert score.details == f"206 words, {100 * 2 / 203:.2f}% unknown, {per_token:.2f} per token"
    assert score.signature.startswith("kutta|per:word|eos:yes|")


def test_a_text_of_empty_lines_has_a_perplexity_and_nothing_unknown(
    language_model: tuple[Config, TextModel, Pretokenized],
) -> None:
    config, model, tokenizer = language_model
    score = word_perplexity(model, tokenizer, ["", ""], config.train, CPU)
    ends = held_out_loss(model, [([], [])], config.train, CPU)
    assert score.value == pytest.approx(ends.perplexity, rel=1e-6)
    assert score.details.startswith("2 words, 0.00% unknown")


def test_a_hopeless_model_has_a_perplexity_that_can_be_printed(
    language_model: tuple[Config, TextModel, Pretokenized],
) -> None:
    """exp(50), not an overflow; and exp(49.5) is still itself."""
    config, model, tokenizer = language_model
    with torch.no_grad():
        model.output_weight.mul_(1e5)
    found = word_perplexity(model, tokenizer, ["dogo seeso cato"], config.train, CPU)
    assert found.value == math.exp(50)
    assert Validation(1.0, 800.0, 1).perplexity == math.exp(50)
    assert Validation(1.0, 49.5, 1).perplexity == math.exp(49.5)


# ---- what is kept, and which is the best ----------------------------------------------------


def test_a_validation_comes_back_from_what_was_written() -> None:
    score = Score("BLEU", 12.5, "", "tok:none")
    for found in (Validation(2.5, 2.0, 90, score), Validation(2.5, 2.0, 90)):
        assert Validation.from_dict(found.to_dict()) == found
    lost = Validation.from_dict({"loss": None, "nll": 1.5, "tokens": 3} | NO_SCORE)
    assert (math.isnan(lost.loss), lost.nll, lost.tokens, lost.bleu) == (True, 1.5, 3, None)
    lost = Validation.from_dict({"loss": 1.5, "nll": None, "tokens": 3} | NO_SCORE)
    assert (lost.loss, math.isnan(lost.nll)) == (1.5, True)


NO_SCORE = {"bleu": None, "signature": None}


def test_a_validation_without_a_score_is_the_worst_by_bleu() -> None:
    """It is a best only where there is none to compare with; its loss does not count."""
    unscored = Validation(0.1, 0.1, 1)
    assert improves(unscored, 0.0, "bleu") == (False, -math.inf)
    assert improves(unscored, None, "bleu") == (True, -math.inf)
    scored = Validation(9.0, 9.0, 1, Score("BLEU", 3.0, "", ""))
    assert improves(scored, 2.0, "bleu") == (True, 3.0)
    assert improves(scored, 2.0, "loss") == (False, 9.0)
    assert improves(Validation(1.0, 7.0, 1, None), 2.0, "loss") == (True, 1.0)

"""A language model through the same loop: prepared, trained, resumed, scored, sampled."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch.nn import functional

from kutta.commands import evaluate_run
from kutta.commands.describe import describe
from kutta.config import Config
from kutta.data.tokenizer import BOS, EOS, Tokenizers
from kutta.errors import InputError
from kutta.model.weights import read_tensors
from kutta.training.run import dry_run_summary, train
from kutta.translate.translator import Translator
from kutta.translate.writer import Writer, load_language_model
from tests.test_cli import is_one_sentence, kutta

LANGUAGE = ("data.source=''", "model.encoder_layers=0", "model.solver=rk2", "model.gamma=learned")
Configure = Callable[..., Config]


@pytest.fixture
def trained(configure: Configure, silent: Console) -> Config:
    config = configure(*LANGUAGE)
    assert train(config, console=silent).ended == "finished"
    return config


def test_perplexity_per_word_is_that_of_plain_arithmetic(trained: Config) -> None:
    run = Path(trained.run)
    (result,) = evaluate_run(run, [], None, "cpu")
    model, tokenizer = load_language_model(run)
    lines = (Path(trained.data.dir) / "test.bb").read_text().splitlines()
    total, words = 0.0, 0
    for line in lines:
        ids = tokenizer.encode(line)
        text = torch.tensor([[BOS, *ids]])
        logits = model.project(model(text[:, :0], text))[:, 0].detach()
        total += float(functional.cross_entropy(logits, torch.tensor([*ids, EOS]), reduction="sum"))
        words += len(line.split()) + 1
    (score,) = result.scores
    assert score.value == pytest.approx(math.exp(total / words), rel=1e-5)
    assert (result.sentences, score.name, result.hypotheses) == (len(lines), "perplexity", None)
    assert f"{words:,} words" in score.details


def test_subwords_of_words_do_not_lower_the_perplexity_of_a_word(
    configure: Configure, silent: Console
) -> None:
    """exp(nll per token x tokens / words): with two subwords a word, the square of the token's."""
    config = configure(*LANGUAGE, "data.tokenizer=bpe", "data.vocab_size=290")
    train(config, console=silent)
    run = Path(config.run)
    (result,) = evaluate_run(run, [], None, "cpu")
    score = result.scores[0]
    per_token = float(score.details.split(", ")[-1].split()[0])
    tokenizer = Tokenizers.load(run).target
    lines = (Path(config.data.dir) / "test.bb").read_text().splitlines()
    tokens = sum(len(tokenizer.encode(line)) + 1 for line in lines)
    words = sum(len(line.split()) + 1 for line in lines)
    assert tokens > words
    assert score.value == pytest.approx(per_token ** (tokens / words), rel=1e-2)


TIED = "model.tie_embeddings=true"


@pytest.mark.parametrize("more", [(), (TIED,)], ids=["untied", "tied"])
def test_an_interrupted_run_ends_with_the_same_weights(
    configure: Configure, silent: Console, tmp_path: Path, more: tuple[str, ...]
) -> None:
    language = (*LANGUAGE, *more)
    whole = configure(*language)
    train(whole, console=silent)
    parts = [
        configure(*language, f"run='{tmp_path / 'parts'}'", f"train.max_steps={n}") for n in (4, 8)
    ]
    for config in parts:
        train(config, console=silent)
    first, second = (read_tensors(Path(c.run) / "model.safetensors") for c in (whole, parts[1]))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert ("output.weight" in first) == (not more)


def test_a_tied_language_model_is_trained_saved_and_loaded(
    configure: Configure, silent: Console
) -> None:
    config = configure(*LANGUAGE, TIED, "train.max_steps=1", "decode.average=1")
    train(config, console=silent)
    kept = read_tensors(Path(config.run) / "model.safetensors")
    model, tokenizer = load_language_model(Path(config.run))
    assert model.output is None
    assert model.output_weight.shape == (len(tokenizer), 8)
    assert torch.equal(model.output_weight, kept["target_embedding.tokens.weight"])
    (result,) = evaluate_run(Path(config.run), [], None, "cpu")
    assert 1 < result.scores[0].value < 10 * len(tokenizer)


def test_weights_of_a_version_without_a_choice_are_loaded_as_tied(
    configure: Configure, silent: Console
) -> None:
    """Its config says nothing of tying, and its weights have no output layer."""
    config = configure(*LANGUAGE, TIED, "train.max_steps=2")
    train(config, console=silent)
    run = Path(config.run)
    (score,) = evaluate_run(run, [], None, "cpu")[0].scores
    values = json.loads((run / "config.json").read_text())
    for section, key in (
        ("model", "tie_embeddings"),
        ("train", "final_model"),
        ("train", "pieces"),
    ):
        del values[section][key]
    (run / "config.json").write_text(json.dumps(values))
    (run / "checksums.json").unlink()
    (again,) = evaluate_run(run, [], None, "cpu")[0].scores
    assert again.value == score.value
    assert train(configure(*LANGUAGE, TIED, "train.max_steps=4"), console=silent).step == 4
    with pytest.raises(InputError, match=r"model\.tie_embeddings = true there, false here"):
        train(configure(*LANGUAGE, "train.max_steps=6"), console=silent)


def test_training_lowers_the_perplexity(configure: Configure, silent: Console) -> None:
    def after(steps: int) -> float:
        changes = (f"train.max_steps={steps}", "train.save_every=100", "decode.average=1")
        config = configure(*LANGUAGE, *changes, "train.label_smoothing=0.0")
        train(config, console=silent)
        (result,) = evaluate_run(Path(config.run), ["valid"], None, "cpu")
        return result.scores[0].value

    at_first = after(1)
    assert after(100) < 0.7 * at_first


def test_sampling_follows_from_seed_and_number_alone(trained: Config) -> None:
    writer = Writer.load(trained.run)
    texts = writer.write("treeo", count=70, max_length=6)
    assert all(text.startswith("treeo") for text in texts)
    assert len(set(texts)) > 10
    assert writer.write("treeo", count=3, max_length=6) == texts[:3]
    assert all(len(text.split()) <= 7 for text in texts)
    assert len(writer.write(count=2)) == 2


def test_a_prompt_of_unknown_words_is_refused(trained: Config) -> None:
    with pytest.raises(InputError, match="the unknown word 'Zebra'"):
        Writer.load(trained.run).write("treeo Zebra")


@pytest.mark.parametrize(("count", "length"), [(0, 5), (1, 0)])
def test_nothing_to_write_is_told(trained: Config, count: int, length: int) -> None:
    with pytest.raises(InputError, match="at least 1"):
        Writer.load(trained.run).write(count=count, max_length=length)


def test_each_kind_of_model_says_what_it_is_for(
    trained: Config, configure: Configure, silent: Console, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="kutta sample"):
        Translator.load(trained.run)
    translation = configure(f"run='{tmp_path / 'translation'}'", "train.max_steps=1")
    train(translation, console=silent)
    with pytest.raises(InputError, match="kutta translate"):
        Writer.load(translation.run)
    assert "kutta sample" in (Path(trained.run) / "README.md").read_text()
    assert "language model" in (Path(trained.run) / "README.md").read_text()


def test_the_plan_and_the_facts_are_those_of_a_language_model(trained: Config) -> None:
    assert "train, valid; bb" in dry_run_summary(trained)
    facts = describe(Path(trained.run), [])
    assert facts["layers"] == "1"
    assert "decoder_method" not in facts
    assert set(facts["vocabulary"]) == {"target", "known"}
    assert facts["parameters"]["encoder"] == 0
    assert facts["multiply_adds"]["per_source_token"] == 0


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (("data.source=''",), "model.encoder_layers = 0"),
        (("model.encoder_layers=0",), "data.source"),
        ((*LANGUAGE, "model.decoder_solver=rk2"), "model.solver"),
        ((*LANGUAGE, "train.best=bleu", "train.valid_bleu=true"), "BLEU"),
    ],
)
def test_half_a_language_model_is_told(
    configure: Configure, overrides: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        configure(*overrides)


def test_empty_lines_are_left_out_of_training(
    configure: Configure, silent: Console, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.mkdir()
    for name in ("train", "valid"):
        (text / f"{name}.bb").write_text("treeo seeso\n\ncato\n" * 20)
    config = configure(*LANGUAGE, f"data.dir='{text}'", "data.test=[]", "train.max_steps=1")
    train(config, console=silent)
    report = (Path(config.run) / "store" / "report.json").read_text()
    assert '"with an empty target": 20' in report


def test_search_options_of_a_language_model_are_refused(trained: Config) -> None:
    for option, value in (("--beam", 4), ("--length-penalty", 0.6), ("--max-length", 9)):
        answer = kutta("evaluate", trained.run, option, value)
        is_one_sentence(answer, option, "a language model", "remove it")
    is_one_sentence(kutta("score", "any", "--run", trained.run), "language model")


def test_a_checkpoint_of_a_language_model_is_scored_and_sampled(trained: Config) -> None:
    Path(trained.run, "model.safetensors").unlink()
    is_one_sentence(kutta("evaluate", trained.run), "--checkpoint last")
    answer = kutta("evaluate", trained.run, "--checkpoint", "last")
    assert answer.code == 0, answer.err
    assert "|step:" in answer.out
    assert kutta("sample", trained.run, "--checkpoint", "last", "--count", 2).out.count("\n") == 2

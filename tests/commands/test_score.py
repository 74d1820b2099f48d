"""`kutta score`: remarks where a score is not what it seems, and options without effect."""

import json
from pathlib import Path

import pytest
import sacrebleu

from tests.test_cli import is_one_sentence, kutta

RAW = ["The cat sits on the mat.", "It is late, isn't it?", "A dog barks!"]
TOKENISED = ["The cat sits on the mat .", "It is late , isn &apos;t it ?", "A dog barks !"]
SUBWORDS = ["The c@@ at sits on the m@@ at .", "It is late , is@@ n't it ?", "A dog bar@@ ks !"]
BARE = ["the cat sits on the mat", "it is late", "a dog barks"]


@pytest.fixture
def written(tmp_path: Path) -> dict[str, Path]:
    texts = {"raw": RAW, "tokenised": TOKENISED, "subwords": SUBWORDS, "bare": BARE}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return {name: tmp_path / name for name in texts}


@pytest.mark.parametrize(
    ("text", "options", "part"),
    [
        ("raw", (), "this text looks raw; add --tokenize"),
        ("raw", ("--tokenize", "en"), ""),
        ("raw", ("--metric", "chrf"), ""),
        ("tokenised", (), "this text looks tokenised; use BLEU"),
        ("tokenised", ("--metric", "bleu"), ""),
        ("subwords", (), "subwords (@@)"),
        ("bare", (), ""),
    ],
)
def test_text_that_does_not_suit_the_metric_is_remarked_on(
    text: str, options: tuple[str, ...], part: str, written: dict[str, Path]
) -> None:
    answer = kutta("score", written[text], written[text], *options)
    assert answer.code == 0
    assert answer.err.count("\n") == bool(part)
    assert part in answer.err


def test_case_is_ignored_by_all_metrics_that_can(written: dict[str, Path]) -> None:
    names = ("sacrebleu", "chrf", "chrf++")
    metrics = [word for name in names for word in ("--metric", name)]
    answer = kutta("score", written["bare"], written["raw"], *metrics, "--lowercase", "--json")
    values = [score["value"] for score in json.loads(answer.out)]
    bleu = sacrebleu.corpus_bleu(BARE, [RAW], lowercase=True).score
    lower = [line.lower() for line in RAW]
    plain = sacrebleu.corpus_chrf(BARE, [lower]).score
    words = sacrebleu.corpus_chrf(BARE, [lower], word_order=2).score
    assert values == pytest.approx([bleu, plain, words])


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--tokenize", "en", "--metric", "chrf"), ("--tokenize", "only on bleu")),
        (("--split-compounds", "--metric", "sacrebleu"), ("--split-compounds", "only on bleu")),
        (("--lowercase", "--metric", "rouge1"), ("--lowercase", "no effect on rouge1")),
        (("--samples", 10), ("--samples", "without --against")),
        (("--seed", 10), ("--seed", "without --against")),
        (("--test", "test"), ("--test test", "without --run")),
    ],
)
def test_an_option_without_effect_is_refused(
    options: tuple[object, ...], parts: tuple[str, ...], written: dict[str, Path]
) -> None:
    is_one_sentence(kutta("score", written["raw"], written["raw"], *options), *parts)


def test_options_that_the_run_decides_are_refused(toy_run: Path, written: dict[str, Path]) -> None:
    for option in (("--tokenize", "de"), ("--lowercase",), ("--split-compounds",)):
        answer = kutta("score", written["raw"], "--run", toy_run, *option)
        is_one_sentence(answer, "from the run", option[0])
    answer = kutta("score", written["raw"], written["raw"], "--run", toy_run, "--test", "test")
    is_one_sentence(answer, "not both")
    is_one_sentence(kutta("score", written["raw"]), "--run RUN")
    answer = kutta("score", written["raw"], "--run", toy_run, "--metric", "rouge1")
    is_one_sentence(answer, "rouge1", "bleu, sacrebleu, chrf")


def test_the_toy_run_is_scored_as_it_was_evaluated(toy_run: Path) -> None:
    """The whole way by commands, with a trained model."""
    (result,) = json.loads(kutta("evaluate", toy_run, "--json").out)
    answer = kutta("score", result["hypotheses"], "--run", toy_run, "--json")
    assert json.loads(answer.out) == result["scores"]
    reference = toy_run.parent / "text" / "test.yy"
    apart = kutta("score", result["hypotheses"], reference, "--tokenize", "en", "--json")
    assert (json.loads(apart.out), apart.err) == (result["scores"], "")

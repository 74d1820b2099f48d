"""Quality against cost under other methods."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from kutta.analysis import inference
from kutta.analysis.inference import measure_inference
from kutta.config import DataConfig, DecodeConfig
from kutta.errors import InputError
from kutta.metrics import Score
from kutta.training.validate import held_out_loss
from kutta.translate.translator import Translator
from tests.analysis.conftest import MakeSubject, no_track, with_config


def row_of(rows: list[dict[str, Any]], stack: str, method: str, **wanted: Any) -> dict[str, Any]:
    wanted = {"substeps": 1, "time": "1", **wanted}
    (row,) = [
        r
        for r in rows
        if (r["stack"], r["method"]) == (stack, method)
        and all(r[name] == value for name, value in wanted.items())
    ]
    return row


def test_the_trained_row_is_the_validation_loss(make_subject: MakeSubject) -> None:
    subject = make_subject(sentences=12, solver="rk2", gamma="learned")
    trained = measure_inference(subject, no_track, methods=())["rows"][0]
    pairs = subject.pairs
    result = held_out_loss(subject.model, pairs, subject.config.train, torch.device("cpu"))
    assert trained["nll"] == pytest.approx(result.nll, rel=1e-5)
    assert trained["perplexity"] == pytest.approx(math.exp(trained["nll"]))
    assert trained["seconds"] > 0


def test_methods_cost_what_they_evaluate(make_subject: MakeSubject) -> None:
    subject = make_subject(solver="euler")
    trained, *rows = measure_inference(subject, no_track)["rows"]
    assert len(rows) == 2 * 3 * 3  # stacks, methods, substeps; the time is 1 everywhere
    euler = row_of(rows, "encoder", "euler")
    assert euler["nll"] == pytest.approx(trained["nll"], rel=1e-5)
    assert euler["multiply_adds"] == trained["multiply_adds"]
    rk4 = row_of(rows, "encoder", "rk4", substeps=2)
    assert rk4["evaluations"] == {"encoder": 8.0, "decoder": 1.0}
    shape = subject.config.model
    once = shape.encoder_layers * (4 * shape.d_model**2 + 2 * shape.d_model * shape.ffn)
    more = rk4["multiply_adds"] - trained["multiply_adds"]
    assert more == 7 * once * subject.facts()["source_tokens"]


def test_multiply_adds_are_those_of_every_token_counted_by_hand(make_subject: MakeSubject) -> None:
    """A source token passes the encoder and the keys and values of the memory."""
    subject = make_subject(sentences=3, solver="euler", encoder_layers=1, decoder_layers=1)
    row = measure_inference(subject, no_track, methods=())["rows"][0]
    d, ffn = subject.config.model.d_model, subject.config.model.ffn
    vocabulary = len(subject.tokenizers.target)
    sources = sum(len(source) + 1 for source, _ in subject.pairs)
    targets = sum(len(target) + 1 for _, target in subject.pairs)
    source = 4 * d * d + 2 * d * ffn + 2 * d * d
    target = 4 * d * d + 2 * d * d + 2 * d * ffn + vocabulary * d
    assert row["multiply_adds"] == sources * source + targets * target
    assert (row["stack"], row["method"], row["substeps"], row["time"]) == ("", "trained", 1, "own")
    assert row["evaluations"] == {"encoder": 1.0, "decoder": 1.0}


def test_seconds_are_the_quickest_pass_of_every_batch_added_up(
    make_subject: MakeSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes of 99, 98, 97, 96, ... seconds, three over each batch: 97 + 94 + ..."""
    subject = make_subject(sentences=4)
    small = subject.config.train.model_copy(update={"batch_tokens": 16})
    subject = with_config(subject, train=small)
    times = itertools.accumulate(t for seconds in range(99, 0, -1) for t in (1000, seconds))
    monkeypatch.setattr(inference.time, "perf_counter", lambda: next(times))
    row = measure_inference(subject, no_track, methods=())["rows"][0]
    batches = len(subject.batches())
    assert batches > 1
    assert row["seconds"] == sum(97 - 3 * batch for batch in range(batches))


def test_learned_weights_are_compared_over_their_own_time(make_subject: MakeSubject) -> None:
    subject = make_subject(solver="rk2", gamma="ones", decoder_solver="euler")
    trained, *rows = measure_inference(subject, no_track, methods=["euler"])["rows"]
    twice = row_of(rows, "encoder", "euler", substeps=2, time="own")
    assert twice["nll"] == pytest.approx(trained["nll"], rel=1e-5)  # it is the same arithmetic
    assert row_of(rows, "encoder", "euler", time="1")
    assert {row["time"] for row in rows if row["stack"] == "decoder"} == {"1"}


def test_methods_that_look_back_take_single_steps(make_subject: MakeSubject) -> None:
    subject = make_subject(solver="rk2", gamma="learned")
    rows = measure_inference(subject, no_track, methods=["leapfrog", "rk4"])["rows"]
    assert [r["substeps"] for r in rows if r["method"] == "leapfrog"] == [1, 1]


def test_bleu_where_it_is_asked_for(
    make_subject: MakeSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The translations are those of the translator, each beside its own reference."""
    scored: list[tuple[list[str], list[str]]] = []

    def score(hypotheses: list[str], references: list[str], _: DataConfig) -> Score:
        scored.append((hypotheses, references))
        return Score("BLEU", 12.0, "", "")

    monkeypatch.setattr(inference, "valid_score", score)
    subject = make_subject(sentences=6, solver="rk2", decoder_solver="rk2")
    rows = measure_inference(subject, no_track, methods=["rk2"], bleu=True)["rows"]
    assert [row["bleu"] for row in rows] == [12.0] * 7
    sources = [subject.tokenizers.source.decode(source) for source, _ in subject.pairs]
    translator = Translator(subject.model, subject.tokenizers, DecodeConfig(beam=1), "cpu")
    expected = translator.translate(sources)
    assert len(set(expected)) > 1
    assert scored[0] == (expected, subject.references)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is given to be scored, translations of one model after those of another."""
    given: list[list[str]] = []

    def score(hypotheses: list[str], references: list[str], _: DataConfig) -> Score:
        given.append(hypotheses)
        return Score("BLEU", 12.0, "", "")

    monkeypatch.setattr(inference, "valid_score", score)
    return given


def test_translations_keep_to_the_limits_of_the_run(
    make_subject: MakeSubject, scored: list[list[str]]
) -> None:
    free = make_subject(sentences=6, solver="rk2")
    decode = DecodeConfig(beam=1, min_length=3, max_length=5, no_repeat_ngram=1)
    limited = with_config(free, decode=decode)
    for subject in (free, limited):
        measure_inference(subject, no_track, methods=(), bleu=True)
    sources = [free.tokenizers.source.decode(source) for source, _ in free.pairs]
    translator = Translator(free.model, free.tokenizers, decode, "cpu")
    assert scored[1] == translator.translate(sources)
    assert scored[1] != scored[0]


def test_a_sentence_without_words_has_no_translation(
    make_subject: MakeSubject, scored: list[list[str]]
) -> None:
    subject = make_subject(sentences=2, solver="rk2")
    pairs = [([], subject.pairs[0][1]), subject.pairs[1]]
    measure_inference(replace(subject, pairs=pairs), no_track, methods=(), bleu=True)
    assert scored[0][0] == ""
    assert scored[0][1]


def test_a_language_model_has_no_bleu(make_subject: MakeSubject) -> None:
    subject = make_subject(source="", encoder_layers=0)
    assert len(measure_inference(subject, no_track, methods=["rk4"])["rows"]) == 4
    with pytest.raises(InputError, match="no BLEU"):
        measure_inference(subject, no_track, bleu=True)

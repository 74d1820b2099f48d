"""What is left of the input token: against polynomials, and against arithmetic by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from kutta.analysis.embedding import measure_embedding
from kutta.analysis.subject import Subject
from kutta.model.decoding import Embedding, sinusoids
from kutta.ode import TABLEAUX, RungeKutta
from tests.analysis.conftest import MakeSubject, no_track

LANGUAGE: dict[str, Any] = {"source": "", "encoder_layers": 0}


def euler(x: float) -> float:
    return 1 - x


def rk2(x: float) -> float:
    return 1 - x + x**2 / 2


def rk4(x: float) -> float:
    return 1 - x + x**2 / 2 - x**3 / 6 + x**4 / 24


FACTORS = {"euler": euler, "rk2": rk2, "rk4": rk4}


@pytest.mark.parametrize("method", FACTORS)
@given(x=st.floats(-3, 3))
def test_a_step_of_a_linear_field_multiplies_by_the_polynomial(method: str, x: float) -> None:
    y = torch.tensor([1.0, -2.0], dtype=torch.float64)
    after, _ = RungeKutta(TABLEAUX[method]).step(lambda y: -x * y, y)
    torch.testing.assert_close(after, FACTORS[method](x) * y, rtol=1e-12, atol=1e-12)


def factors(method: str, x: Tensor, gamma: tuple[float, float] | None = None) -> Tensor:
    """By what one step multiplies y where F(y) = -x y, for every x (n,)."""
    solver = RungeKutta(TABLEAUX[method], "learned" if gamma else "tableau").double()
    if gamma is not None:
        solver.load_state_dict({"learned_gamma": torch.tensor(gamma, dtype=torch.float64)})
    with torch.no_grad():
        return solver.step(lambda y: -x * y, torch.ones_like(x))[0]


def test_accurate_methods_cannot_forget_and_euler_and_free_weights_can() -> None:
    """What docs/language-model.md says: the least factor over all x of F(y) = -x y."""
    grid, one = torch.linspace(-2, 4, 6001).double(), torch.ones(1).double()
    least = {name: float(factors(name, grid).min()) for name in ("rk2", "rk4")}
    assert least["rk2"] == pytest.approx(1 / 2, abs=1e-6)
    # The slope of RK4's is minus its cubic part, so at the least point x only x^4 / 24 is left.
    (x,) = (root.real for root in np.roots([-1 / 6, 1 / 2, -1, 1]) if abs(root.imag) < 1e-9)
    assert least["rk4"] == pytest.approx(x**4 / 24, abs=1e-6) == pytest.approx(0.27, abs=1e-3)
    assert factors("euler", one) == 0
    assert factors("rk2", one, gamma=(1.0, 1.0)) == 0  # (1 - x)^2
    # Weights g1, g2: 1 - (g1 + g2) x + g2 x^2, least at x = (g1 + g2) / (2 g2).
    for g1, g2 in ((0.3, 0.6), (0.9, 0.4), (0.5, 0.5)):
        expected = 1 - (g1 + g2) ** 2 / (4 * g2)
        assert float(factors("rk2", grid, gamma=(g1, g2)).min()) == pytest.approx(
            expected, abs=1e-6
        )


@pytest.mark.parametrize(
    ("rest", "of_rk2", "of_rk4"), [(0.5**0.5, 0.47, 0.22), (0.1, 0.22, 0.0), (50.0, 0.5, 0.27)]
)
def test_a_norm_inside_the_field_lowers_the_limit(
    rest: float, of_rk2: float, of_rk4: float
) -> None:
    """The other numbers of docs/language-model.md: F = -x a / sqrt(a^2 + rest^2), from a = 1."""
    x = torch.linspace(0, 4, 40001).double() * max(1.0, rest)
    least: list[float] = []
    for method in ("rk2", "rk4"):
        solver = RungeKutta(TABLEAUX[method])
        a, _ = solver.step(lambda a: -x * a / (a**2 + rest**2).sqrt(), torch.ones_like(x))
        least.append(max(0.0, float(a.min())))
    assert least == pytest.approx([of_rk2, of_rk4], abs=0.005)
    # RK2 by hand, as a function of the first stage's end b = 1 - x / scale.
    scale, b = math.sqrt(1 + rest**2), np.linspace(-1, 1, 20001)
    ends = 1 - (1 - b) * (1 + scale * b / np.sqrt(b**2 + rest**2)) / 2
    assert least[0] == pytest.approx(ends.min(), abs=1e-5)


class Linear(nn.Module):
    """F(y) = factor x y, in the place of a sublayer."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, y: Tensor, context: object, cache: object = None) -> Tensor:
        return self.factor * y


def forgetting(subject: Subject, rates: Sequence[float]) -> Subject:
    """The same with F(y) = -rate y in every layer of the one stack."""
    for layer, rate in zip(subject.model.decoder.each_layer(), rates, strict=True):
        layer.san, layer.ffn = Linear(-rate), Linear(0.0)  # type: ignore[assignment]
    return subject


def by_hand(embedding: Embedding, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """e and y_0 = e + p of one sentence, each (T, d)."""
    weight = embedding.tokens.weight.detach().double().numpy()
    d = weight.shape[1]
    e = math.sqrt(d) * weight[list(ids)]
    return e, e + sinusoids(0, len(ids), d, torch.device("cpu")).double().numpy()


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("method", FACTORS)
def test_a_field_that_forgets_leaves_what_the_polynomial_says(
    make_subject: MakeSubject, method: str
) -> None:
    settings = LANGUAGE | {"solver": method, "decoder_layers": 2}
    subject = forgetting(make_subject(sentences=3, **settings), (0.8, 1.7))
    rows = measure_embedding(subject, no_track)["rows"]
    ids = [batch.target_in[0].tolist() for batch in subject.one_by_one()]
    inputs = [by_hand(subject.model.target_embedding, sentence) for sentence in ids]
    start = [y @ e / (e @ e) for es, ys in inputs for e, y in zip(es, ys, strict=True)]
    angles = [cosine(y, e) for es, ys in inputs for e, y in zip(es, ys, strict=True)]
    places = ["san", "ffn"] if method == "euler" else ["san+ffn"]
    names = [(0, "input"), *((n, part) for n in (1, 2) for part in places), (2, "norm")]
    assert [(row["layer"], row["sublayers"]) for row in rows] == names
    left = {0: 1.0, 1: FACTORS[method](0.8), 2: FACTORS[method](0.8) * FACTORS[method](1.7)}
    for row in rows[:-1]:
        factor = left[row["layer"]]
        assert row["positions"] == len(start)
        assert row["coefficient"] == pytest.approx(factor * np.median(start), rel=1e-4)
        ends = sorted(factor * np.quantile(start, (0.1, 0.9)))
        assert [row["low"], row["high"]] == pytest.approx(ends, rel=1e-4)
        sign = math.copysign(1, factor)
        assert row["cosine"] == pytest.approx(sign * np.median(angles), rel=1e-4)


def test_behind_the_final_norm(make_subject: MakeSubject) -> None:
    """LN takes out the mean and the scale of a state, so Euler's factor is lost there."""
    subject = forgetting(make_subject(sentences=1, **LANGUAGE, solver="euler"), [0.8])
    norm = subject.model.decoder.norm
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    row = measure_embedding(subject, no_track)["rows"][-1]
    gain, bias = (p.detach().double().numpy() for p in (norm.weight, norm.bias))
    (batch,) = subject.one_by_one()
    e, y = by_hand(subject.model.target_embedding, batch.target_in[0].tolist())
    centred = 0.2 * (y - y.mean(1, keepdims=True))
    h = gain * centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) + bias
    assert row["sublayers"] == "norm"
    assert row["coefficient"] == pytest.approx(np.median((h * e).sum(1) / (e * e).sum(1)), rel=1e-4)
    expected = np.median([cosine(a, b) for a, b in zip(h, e, strict=True)])
    assert row["cosine"] == pytest.approx(expected, rel=1e-4)


def test_others_are_the_tokens_of_the_text_that_differ(make_subject: MakeSubject) -> None:
    subject = make_subject(sentences=4, **LANGUAGE)
    row = measure_embedding(subject, no_track)["rows"][0]
    sentences = [batch.target_in[0].tolist() for batch in subject.one_by_one()]
    inputs = [by_hand(subject.model.target_embedding, sentence) for sentence in sentences]
    ids = list(chain.from_iterable(sentences))
    es, ys = (np.concatenate(each) for each in zip(*inputs, strict=True))
    others = []
    for token, y in zip(ids, ys, strict=True):
        different = [e for other, e in zip(ids, es, strict=True) if other != token]
        others.append(np.mean([y @ e / (e @ e) for e in different]))
    own = (ys * es).sum(1) / (es * es).sum(1)
    assert len(set(ids)) < len(ids), "some tokens come twice"
    assert row["others"] == pytest.approx(np.median(others), rel=1e-4)
    assert row["excess"] == pytest.approx(np.median(own - others), rel=1e-4)
    assert abs(np.median(own) - np.median(others) - np.median(own - others)) > 1e-3


def test_each_stack_is_held_against_its_own_input(make_subject: MakeSubject) -> None:
    """Before the first block a state is e + p; the position is small beside e."""
    subject = make_subject(sentences=2, decoder_solver="rk2")
    target = subject.model.target_embedding
    source = Embedding(*target.tokens.weight.shape, subject.model.pad, 0.0)
    subject.model.source_embedding = source  # one of its own
    with torch.no_grad():
        for embedding in (source, target):
            embedding.tokens.weight.mul_(100)
    rows = measure_embedding(subject, no_track)["rows"]
    tokens = subject.facts()
    for stack, side in (("encoder", "source_tokens"), ("decoder", "target_tokens")):
        first, *rest = [row for row in rows if row["stack"] == stack]
        assert first["sublayers"] == "input"
        assert first["coefficient"] == pytest.approx(1.0, abs=0.02)
        assert first["cosine"] > 0.99
        assert first["positions"] == tokens[side]
        assert rest[-1]["sublayers"] == "norm"


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "euler", "norm": "post", "encoder_layers": 2},
        {"solver": "rk2", "replicate": "release"},
        {"solver": "dlcl", "decoder_solver": "leapfrog"},
        {"solver": "rk2", "stage_parameters": "separate"},
        {"solver": "rk2", "share_layers": True, "gamma": "learned", "share_gamma": True},
    ],
    ids=str,
)
def test_the_state_behind_a_layer_is_what_the_model_has_there(
    make_subject: MakeSubject, settings: dict[str, Any]
) -> None:
    """Whatever stands between layers (post-norm, dense connections) belongs to the state."""
    subject = make_subject(sentences=1, **settings)
    rows = [r for r in measure_embedding(subject, no_track)["rows"] if r["stack"] == "encoder"]
    (batch,) = subject.one_by_one()
    stack, given = subject.model.encoder, list[Tensor]()  # type: ignore[union-attr]
    for layer in stack.layers:
        layer.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    with torch.no_grad():
        final = stack.norm.register_forward_pre_hook(lambda _, args: given.append(args[0]))
        subject.model(batch.source, batch.target_in)
        final.remove()
    e, _ = by_hand(subject.model.source_embedding, batch.source[0].tolist())  # type: ignore[arg-type]
    for number, y in enumerate(given):
        row = [row for row in rows if row["layer"] == number and row["sublayers"] != "norm"][-1]
        left = (y[:, 0].double().numpy() * e).sum(1) / (e * e).sum(1)
        assert row["coefficient"] == pytest.approx(np.median(left), rel=1e-3)
    assert (rows[-1]["sublayers"] == "norm") == (settings.get("norm") != "post")


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_told_whether_the_output_layer_is_tied(make_subject: MakeSubject, tied: bool) -> None:
    subject = make_subject(sentences=1, **LANGUAGE, tie_embeddings=tied)
    assert measure_embedding(subject, no_track)["tied"] == tied


def test_a_text_of_one_token_has_no_others(make_subject: MakeSubject) -> None:
    subject = make_subject(sentences=1, **LANGUAGE)
    ((source, target),) = subject.pairs
    subject = replace(subject, pairs=[(source, target[:0])])  # the mark of the beginning is left
    row = measure_embedding(subject, no_track)["rows"][0]
    assert row["positions"] == 1
    assert math.isnan(row["others"])

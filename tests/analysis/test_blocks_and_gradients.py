"""Norms, coefficients and gradients of blocks, computed a second way."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kutta.analysis.blocks import coefficients, measure_blocks
from kutta.analysis.gradients import measure_gradients
from kutta.analysis.observe import Seen, stacks_of, watch
from kutta.ode import Solver
from kutta.ode.solver import Field, History
from kutta.training.objective import token_loss
from tests.analysis.conftest import MakeSubject, no_track, with_config


def test_lengths_and_directions_of_a_block(make_subject: MakeSubject) -> None:
    subject = make_subject(sentences=1, solver="rk2", gamma="learned")
    row = measure_blocks(subject, no_track)["rows"][0]
    (batch,) = subject.one_by_one()
    captured: list[Tensor] = []
    layer = next(iter(stacks_of(subject.model)["encoder"].each_layer()))
    layer.register_forward_pre_hook(lambda _, args: captured.append(args[0]))
    layer.register_forward_hook(lambda _, args, out: captured.append(out[0]))
    with torch.no_grad():
        subject.model(batch.source, batch.target_in)
    y, after = captured
    assert row["state"] == pytest.approx(float(y.pow(2).sum(-1).mean().sqrt()), rel=1e-5)
    assert row["relative_step"] == pytest.approx(float((after - y).norm() / y.norm()), rel=1e-5)
    assert row["cosine_to_first"][0] == pytest.approx(1.0)
    gamma = subject.model.get_parameter("encoder.layers.0.solvers.0.learned_gamma").detach()
    assert row["coefficients"]["gamma"] == pytest.approx(gamma.tolist())
    assert row["time"] == pytest.approx(float(gamma.sum()))


@pytest.mark.parametrize("stages", ["shared", "separate"])
def test_the_step_is_the_weighted_sum_of_the_stages(make_subject: MakeSubject, stages: str) -> None:
    """|step|^2 = sum of g_i g_j F_i.F_j, which lengths and cosines give for two stages."""
    subject = make_subject(sentences=1, solver="rk2", gamma="ema", stage_parameters=stages)
    for row in measure_blocks(subject, no_track)["rows"][:2]:
        (a, b), (one, two) = row["coefficients"]["gamma"], row["stages"]
        together = 2 * a * b * one * two * row["cosine_to_first"][1]
        expected = math.sqrt((a * one) ** 2 + (b * two) ** 2 + together)
        assert row["step"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"solver": "rk2", "gamma": "gated"}, {"gamma", "gamma_deviation"}),
        ({"solver": "multistep"}, {"k"}),
        ({"solver": "dlcl"}, {"weights"}),
        ({"solver": "pc2"}, {"corrector", "predictor.alpha"}),
        ({"solver": "leapfrog"}, set()),
    ],
)
def test_the_coefficients_of_every_kind(
    make_subject: MakeSubject, settings: dict[str, str], names: set[str]
) -> None:
    rows = measure_blocks(make_subject(**settings), no_track)["rows"]
    assert set(rows[1]["coefficients"]) == names
    if "gamma" in names:
        assert sum(rows[1]["coefficients"]["gamma"]) == pytest.approx(1.0, abs=1e-5)


class Learned(Solver):
    """A method that has learned `count` numbers: 0, 1, 2, ..."""

    evaluations = 1

    def __init__(self, count: int) -> None:
        super().__init__()
        self.many = torch.nn.Parameter(torch.arange(float(count)))

    def step(self, F: Field, y: Tensor, history: History = ()) -> tuple[Tensor, History]:
        return y + F(y), history


def test_up_to_64_numbers_are_told_and_more_by_their_mean() -> None:
    assert coefficients(Learned(64), []) == {"many": [float(n) for n in range(64)]}
    assert coefficients(Learned(65), []) == {"many": [32.0]}


def test_gated_weights_are_told_by_mean_and_deviation(make_subject: MakeSubject) -> None:
    """s = sigmoid(W [F1; F2] + b) of every token, written out; the weights are s and 1 - s."""
    subject = make_subject(sentences=1, solver="rk2", gamma="gated", encoder_layers=1)
    row = measure_blocks(subject, no_track)["rows"][0]["coefficients"]
    seen: list[Seen] = []
    watch(subject.model, subject.one_by_one(), seen.append)
    first = seen[0]
    with torch.no_grad():
        one = first.F(first.y)
        weights = [w.double() for w in first.solver.weights([one, first.F(first.y + one)])]
    for index, weight in enumerate(weights):
        mean = float(weight.sum() / weight.numel())
        spread = math.sqrt(float((weight - mean).square().sum()) / weight.numel())
        assert row["gamma"][index] == pytest.approx(mean, rel=1e-5)
        assert row["gamma_deviation"][index] == pytest.approx(spread, rel=1e-4)
        assert spread > 0


def test_a_row_has_the_medians_of_its_sentences(make_subject: MakeSubject) -> None:
    """Of three sentences the middle one, measure by measure."""
    subject = make_subject(sentences=3, solver="rk2", gamma="gated")
    apart = [
        measure_blocks(replace(subject, pairs=[pair]), no_track)["rows"] for pair in subject.pairs
    ]
    for number, row in enumerate(measure_blocks(subject, no_track)["rows"]):
        rows = [rows[number] for rows in apart]
        for name in ("state", "step", "relative_step", "cosine_to_state"):
            assert row[name] == pytest.approx(sorted(r[name] for r in rows)[1])
        for stage, values in enumerate(zip(*(r["stages"] for r in rows), strict=True)):
            assert row["stages"][stage] == pytest.approx(sorted(values)[1])


def test_admin_omegas_are_told_by_their_mean(make_subject: MakeSubject) -> None:
    subject = make_subject(solver="euler", norm="post", init="admin", d_model=80)
    omega = subject.model.get_parameter("encoder.layers.0.solvers.0.omega").detach()
    row = measure_blocks(subject, no_track)["rows"][0]
    assert row["coefficients"]["omega"] == pytest.approx([float(omega.mean())])


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "rk2", "gamma": "learned"},
        {"source": "", "encoder_layers": 0},
        {"solver": "rk2", "decoder_solver": "rk4", "stage_parameters": "separate"},
    ],
    ids=["translation", "language model", "separate stages"],
)
def test_the_blocks_share_the_gradient_of_the_model(
    make_subject: MakeSubject, settings: dict[str, Any]
) -> None:
    """Squares add up: the blocks, the embeddings and the final norms are the whole model."""
    subject = make_subject(sentences=5, **settings)
    result = measure_gradients(subject, no_track)
    model = subject.model
    assert all(p.grad is None for p in model.parameters())
    tokens = sum(batch.tokens for batch in subject.one_by_one())
    loss = torch.zeros(())
    for batch in subject.one_by_one():
        hidden = model(batch.source, batch.target_in)
        smoothing = subject.config.train.label_smoothing
        parts = token_loss(hidden, model.output_weight, batch.target_out, model.pad, smoothing)
        loss = loss + parts.smoothed / tokens
    loss.backward()
    squares = {n: float(p.grad.pow(2).sum()) for n, p in model.named_parameters()}
    assert result["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert result["model"] == pytest.approx(math.sqrt(sum(squares.values())), rel=1e-4)
    outside = sum(s for n, s in squares.items() if ".layers." not in n)
    inside = sum(row["parameters"] ** 2 for row in result["rows"])
    assert inside + outside == pytest.approx(result["model"] ** 2, rel=1e-4)


def test_the_gradient_of_a_state(make_subject: MakeSubject) -> None:
    """Over several batches, against one sentence after the other."""
    subject = make_subject(sentences=4, solver="rk4")
    small = subject.config.train.model_copy(update={"batch_tokens": 16})
    subject = with_config(subject, train=small)
    assert len(subject.batches()) > 1
    row = measure_gradients(subject, no_track)["rows"][1]
    model, batches = subject.model, subject.one_by_one()
    states: list[Tensor] = []
    layer = list(stacks_of(model)["encoder"].each_layer())[1]
    layer.register_forward_pre_hook(lambda _, args: states.append(args[0]))
    loss = torch.zeros(())
    for batch in batches:
        hidden = model(batch.source, batch.target_in)
        smoothing = subject.config.train.label_smoothing
        parts = token_loss(hidden, model.output_weight, batch.target_out, model.pad, smoothing)
        loss = loss + parts.smoothed / sum(batch.tokens for batch in batches)
    squares = sum(float(g.pow(2).sum()) for g in torch.autograd.grad(loss, states))
    assert (row["layer"], row["sublayers"]) == (2, "san+ffn")
    assert row["state"] == pytest.approx(math.sqrt(squares), rel=1e-4)


def test_the_course_of_training_is_read_from_the_log(make_subject: MakeSubject) -> None:
    steps = measure_gradients(make_subject(), no_track)["steps"]
    assert [record["step"] for record in steps] == [2, 4, 6, 8]
    assert all(record["grad_norm"] > 0 for record in steps)


def test_the_course_has_the_norms_of_training_records_alone(make_subject: MakeSubject) -> None:
    subject = make_subject(sentences=1)
    records = [
        {"kind": "train", "step": 1, "grad_norm": 2.5},
        {"kind": "valid", "step": 1, "grad_norm": 9.0},
        {"kind": "train", "step": 2, "grad_norm": None},
        {"kind": "train", "step": 3, "grad_norm": 1.5},
    ]
    subject.run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    steps = measure_gradients(subject, no_track)["steps"]
    assert steps == [{"step": 1, "grad_norm": 2.5}, {"step": 3, "grad_norm": 1.5}]

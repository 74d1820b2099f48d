"""Watching a model changes nothing and misses nothing."""

from collections import Counter
from itertools import pairwise

import pytest
import torch

from kutta.analysis.observe import Place, Seen, blocks_of, observing, stacks_of, times_of, watch
from tests.analysis.conftest import MakeSubject

KINDS = [
    {"solver": "rk2", "gamma": "learned"},
    {"solver": "euler"},
    {"solver": "rk4", "field": "san/ffn", "decoder_solver": "rk2"},
    {"solver": "rk2", "field": "macaron"},
    {"solver": "dlcl"},
    {"solver": "pc2"},
    {"solver": "rk2", "gamma": "gated", "share_gamma": True},
    {"solver": "rk2", "gamma": "ema", "share_layers": True},
    {"solver": "rk2", "decoder_solver": "rk4", "stage_parameters": "separate"},
    {"source": "", "encoder_layers": 0, "solver": "rk4", "gamma": "learned"},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_watching_changes_nothing_and_sees_every_block_in_order(
    make_subject: MakeSubject, kind: dict[str, str]
) -> None:
    subject = make_subject(**kind)
    model, (batch, *_) = subject.model.eval(), subject.one_by_one()
    with torch.no_grad():
        before = model(batch.source, batch.target_in)
    solvers = [layer.solvers[index] for _, layer, index in blocks_of(model)]
    seen: list[Seen] = []
    watch(model, [batch], seen.append)
    with torch.no_grad():
        again = model(batch.source, batch.target_in)
    assert torch.equal(before, again)
    assert all(
        layer.solvers[index] is solver
        for (_, layer, index), solver in zip(blocks_of(model), solvers, strict=True)
    )
    assert [s.place for s in seen] == [place for place, _, _ in blocks_of(model)]
    for one, next_one in pairwise(seen):
        if one.place.stack == next_one.place.stack:
            assert torch.equal(one.after, next_one.y)


def test_the_solvers_come_back_after_a_failure(make_subject: MakeSubject) -> None:
    subject = make_subject()
    before = [layer.solvers[index] for _, layer, index in blocks_of(subject.model)]

    def fail(seen: Seen) -> None:
        raise RuntimeError("told")

    batch = subject.one_by_one()[0]
    with pytest.raises(RuntimeError, match="told"), observing(subject.model, fail):
        subject.model(batch.source, batch.target_in)
    assert before == [layer.solvers[index] for _, layer, index in blocks_of(subject.model)]


def test_the_stacks_of_both_kinds_of_model(make_subject: MakeSubject) -> None:
    assert list(stacks_of(make_subject().model)) == ["encoder", "decoder"]


def test_a_language_model_has_one_stack(make_subject: MakeSubject) -> None:
    subject = make_subject(source="", encoder_layers=0)
    assert list(stacks_of(subject.model)) == ["decoder"]
    assert Counter(place.sublayers for place, _, _ in blocks_of(subject.model)) == {"san+ffn": 1}


def test_the_time_of_a_block_is_the_sum_of_its_weights(make_subject: MakeSubject) -> None:
    subject = make_subject(solver="rk4", gamma="learned")
    times = times_of(subject.model)
    weights = dict(subject.model.named_parameters())
    for layer in (1, 2):
        gamma = weights[f"encoder.layers.{layer - 1}.solvers.0.learned_gamma"]
        assert times[Place("encoder", layer, "san+ffn")] == pytest.approx(
            float(gamma.detach().sum())
        )
    assert times[Place("decoder", 1, "cross")] == 1.0

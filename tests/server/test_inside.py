"""The numbers of the view are those of the analyses, for one sentence."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kutta import Translator
from kutta.data.tokenizer import EOS
from kutta.server.inside import Inside
from tests.server.conftest import Running, fake_model, running

SENTENCE = "ba be bi bo"
FIELDS = {"q": SENTENCE, "source": "xx", "target": "yy"}


@pytest.fixture(scope="module")
def inside(toy_run: Path) -> Inside:
    return Inside.of(toy_run, Translator.load(toy_run, device="cpu"))


@pytest.fixture(scope="module")
def states(inside: Inside) -> dict[str, Any]:
    return inside.states(SENTENCE)


def test_the_states_are_those_of_the_encoder(inside: Inside, states: dict[str, Any]) -> None:
    """Computed again from the embedding and the model, without an observer."""
    model, known = inside.subject.model, inside.subject.tokenizers
    ids = torch.tensor([[*known.source.encode(SENTENCE), EOS]])
    with torch.no_grad():
        y = model.source_embedding(ids)[:, 0]
    encoder = states["stacks"][0]
    assert encoder["norms"][0] == pytest.approx(y.square().mean(dim=-1).sqrt().tolist(), abs=1e-3)


def test_blocks_stages_and_weights(states: dict[str, Any]) -> None:
    encoder, decoder = states["stacks"]
    assert (encoder["method"], decoder["method"]) == ("rk2", "euler")
    (block,) = encoder["blocks"]
    assert len(block["stages"]) == len(block["coefficients"]["gamma"]) == 2
    assert [row["sublayers"] for row in decoder["blocks"]] == ["san", "cross", "ffn"]
    assert encoder["tokens"][-1] == "end"
    assert decoder["tokens"][0] == "start"


def test_the_path_is_a_projection(states: dict[str, Any]) -> None:
    """The plane keeps what it explains, so no distance is longer than between the states."""
    for stack in states["stacks"]:
        count = len(stack["tokens"])
        assert all(len(row) == count for row in (*stack["norms"], *stack["path"]))
        assert sum(place is None for place in stack["path"][0]) == 1, "the mark"
        assert 0 < sum(stack["explained"]) <= 1.001


def test_errors_fall_with_the_order(inside: Inside) -> None:
    for block in inside.truncation(SENTENCE)["blocks"]:
        errors = block["errors"]
        assert errors["rk4"] < errors["rk2"] < errors["euler"]


def test_many_steps_of_any_method_agree(inside: Inside) -> None:
    """The methods solve the same ODE, so with more steps they say the same."""

    def apart(substeps: int) -> float:
        rows = inside.methods(SENTENCE, "encoder", substeps)["rows"]
        assert [row["method"] for row in rows] == ["trained", "euler", "rk2", "rk4"]
        return abs(rows[2]["score"] - rows[3]["score"])

    assert apart(8) < apart(1) / 8, "RK2 is of order 2"


def test_the_server_answers_with_them(toy_served: Running, states: dict[str, Any]) -> None:
    assert toy_served.client.get("/inside").json() == {"pairs": ["xx-yy"], "missing": {}}
    answer = toy_served.post("/inside/states", **FIELDS)
    assert answer.json()["stacks"][0]["tokens"] == states["stacks"][0]["tokens"]
    assert len(toy_served.post("/inside/truncation", **FIELDS).json()["blocks"]) == 2
    rows = toy_served.post("/inside/methods", **FIELDS, stack="decoder", substeps=2).json()["rows"]
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("path", "fields", "says"),
    [
        ("states", {"q": " \n "}, "empty"),
        ("states", {"q": "x" * 301}, "at most 300"),
        ("states", {"target": "xx"}, "no single model from xx to xx"),
        ("methods", {"stack": "both"}, "encoder or decoder"),
        ("methods", {"substeps": "two"}, "not a number"),
    ],
)
def test_wrong_questions(toy_served: Running, path: str, fields: dict[str, Any], says: str) -> None:
    answer = toy_served.post(f"/inside/{path}", **{**FIELDS, **fields})
    assert answer.status_code == 400
    assert says in answer.json()["error"]


def test_without_a_run_directory_there_is_no_view() -> None:
    with running([fake_model("en", "de")]) as one:
        assert one.client.get("/inside").json()["pairs"] == []
        answer = one.post("/inside/states", q="Hi.", source="en", target="de")
        assert answer.status_code == 404
        assert "run directory" in answer.json()["error"]

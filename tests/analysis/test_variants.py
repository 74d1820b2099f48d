"""The same weights under another method, against identities that hold exactly."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kutta.analysis.subject import Subject
from kutta.analysis.variants import check_method, not_an_ode, with_method
from kutta.config import ModelConfig
from kutta.errors import InputError
from kutta.model import TextModel
from kutta.ode import METHODS
from tests.analysis.conftest import MakeSubject, with_config


def hidden(subject: Subject, model: TextModel) -> Tensor:
    batch = subject.one_by_one()[0]
    with torch.no_grad():
        return model.eval()(batch.source, batch.target_in)


def test_the_own_method_gives_the_own_answer(make_subject: MakeSubject) -> None:
    subject = make_subject(solver="rk4")
    assert torch.equal(
        hidden(subject, subject.model), hidden(subject, with_method(subject, "encoder", "rk4"))
    )


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_euler_over_whole_blocks_is_the_residual_model(
    make_subject: MakeSubject, stack: str
) -> None:
    subject = make_subject(solver="euler")
    composed = with_method(subject, stack, "euler")
    torch.testing.assert_close(hidden(subject, composed), hidden(subject, subject.model))


@pytest.mark.parametrize(
    "settings", [{}, {"source": "", "encoder_layers": 0}], ids=["translation", "language model"]
)
def test_rk2_with_weights_of_one_is_two_steps_of_euler(
    make_subject: MakeSubject, settings: dict[str, Any]
) -> None:
    """Its block covers the time 2, so two substeps of Euler over that time are its two stages."""
    subject = make_subject(solver="rk2", gamma="ones", **settings)
    stack = "decoder" if settings else "encoder"
    twice = with_method(subject, stack, "euler", substeps=2, own_time=True)
    torch.testing.assert_close(hidden(subject, twice), hidden(subject, subject.model))
    once = with_method(subject, stack, "euler", substeps=2)
    assert not torch.allclose(hidden(subject, once), hidden(subject, subject.model))


def test_the_other_stack_keeps_what_it_has_learned(make_subject: MakeSubject) -> None:
    subject = make_subject(solver="rk2", decoder_solver="rk2", decoder_gamma="learned")
    model = with_method(subject, "encoder", "rk2")
    assert torch.equal(hidden(subject, model), hidden(subject, subject.model))


def test_methods_that_learn_coefficients_have_initial_ones(make_subject: MakeSubject) -> None:
    """DLCL starts at Euler."""
    subject = make_subject(solver="euler")
    model = with_method(subject, "encoder", "dlcl")
    torch.testing.assert_close(hidden(subject, model), hidden(subject, subject.model))


def test_a_method_that_the_placement_does_not_allow(make_subject: MakeSubject) -> None:
    subject = make_subject(solver="rk2", field="san/ffn")
    with pytest.raises(InputError, match="leapfrog looks back over whole layers"):
        with_method(subject, "encoder", "leapfrog")
    with pytest.raises(InputError, match="leapfrog looks back over whole layers"):
        check_method(subject, "encoder", "leapfrog")
    with pytest.raises(InputError, match="custom"):
        check_method(subject, "encoder", "custom")


@pytest.mark.parametrize("method", [m for m in METHODS if m != "custom"])
def test_what_works_is_not_refused(make_subject: MakeSubject, method: str) -> None:
    subject = make_subject(solver="rk2", gamma="gated", init="depth-scaled")
    check_method(subject, "encoder", method)
    check_method(subject, "decoder", method)


def test_layers_are_dropped_in_training_only(make_subject: MakeSubject) -> None:
    dropping = make_subject(solver="rk2", layer_drop=0.2)
    check_method(dropping, "encoder", "leapfrog")
    answer = hidden(dropping, with_method(dropping, "encoder", "leapfrog"))
    assert answer.isfinite().all()


def test_what_is_not_an_ode() -> None:
    assert not_an_ode(ModelConfig()) is None
    post = ModelConfig(solver="euler", norm="post")
    assert "post-norm" in str(not_an_ode(post))
    assert "whole output" in str(not_an_ode(ModelConfig(replicate="release")))
    separate = {"stage_parameters": "separate", "decoder_solver": "euler"}
    assert "its own F" in str(not_an_ode(ModelConfig(solver="rk2", **separate)))
    assert not_an_ode(ModelConfig(solver="leapfrog", **separate)) is None


def test_separate_stages_that_are_one_stage_run_with_any_method(make_subject: MakeSubject) -> None:
    """An Euler model has one F in a block; another method evaluates it several times."""
    separate = make_subject(solver="euler", stage_parameters="separate")
    answer = hidden(separate, with_method(separate, "encoder", "rk4"))
    plain = separate.config.model.model_copy(update={"stage_parameters": "shared"})
    shared = with_config(separate, model=plain)
    assert torch.equal(answer, hidden(shared, with_method(shared, "encoder", "rk4")))


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_what_belongs_to_the_trained_method_does_not_stand_in_the_way(
    make_subject: MakeSubject, stack: str
) -> None:
    """A tableau of one's own and shared weights stay with the stack that still has them."""
    own = {"a": [["2/3"]], "b": ["1/4", "3/4"]}
    subject = make_subject(
        solver="custom", gamma="learned", gamma_start="tableau", share_gamma=True, tableau=own
    )
    model = with_method(subject, stack, "rk4")
    kept = "decoder" if stack == "encoder" else "encoder"
    before, after = subject.model.state_dict(), model.state_dict()
    names = [name for name in before if name.startswith(kept)]
    assert names
    assert [name for name in after if name.startswith(kept)] == names
    assert all(torch.equal(before[name], after[name]) for name in names)

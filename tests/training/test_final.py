"""The final model: its candidates, the choice between them, and what the card says of it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors.numpy import load_file

from kutta.config import Config
from kutta.metrics import Score
from kutta.runs import Checkpoint, Run
from kutta.training import session as session_module
from kutta.training.final import Candidate, candidates, choose
from kutta.training.run import train
from kutta.training.validate import Validation, held_out_loss

Configure = Callable[..., Config]


def finished(configure: Configure, silent: Console, *settings: str) -> Run:
    config = configure(
        "train.save_every=2", "train.max_steps=8", "train.final_model=validated", *settings
    )
    train(config, console=silent)
    return Run.load(config.run)


def steps_of(found: list[Candidate]) -> list[list[int]]:
    return [[one.step for one in candidate.checkpoints] for candidate in found]


def of_kind(run: Run, kind: str, **changes: Any) -> Run:
    settings = run.config.train.model_copy(update={"final_model": kind} | changes)
    return Run(run.path, run.config.model_copy(update={"train": settings}))


def test_candidates_are_averages_the_last_and_the_best(
    configure: Configure, silent: Console
) -> None:
    run = finished(configure, silent, "decode.average=3", "train.final_model=last")
    found = candidates(of_kind(run, "validated"), best_step=4)
    assert steps_of(found) == [[4, 6, 8], [6, 8], [8], [4]]
    assert [one.name for one in found][-2:] == [
        "the last checkpoint, step 8",
        "the best checkpoint, step 4",
    ]
    assert steps_of(candidates(of_kind(run, "validated"), best_step=8)) == [
        [4, 6, 8],
        [6, 8],
        [8],
    ], "the same checkpoints are one candidate"
    assert steps_of(candidates(of_kind(run, "average"), best_step=4)) == [[4, 6, 8]]
    assert steps_of(candidates(of_kind(run, "average", keep_last=2), 4)) == [[6, 8]]
    assert steps_of(candidates(of_kind(run, "last"), best_step=4)) == [[8]]
    assert steps_of(candidates(of_kind(run, "best"), best_step=4)) == [[4]]
    assert steps_of(candidates(of_kind(run, "best"), best_step=0)) == [[8]], "none was validated"


def test_the_usual_choice_is_the_first_candidate_also_if_it_is_one_checkpoint(
    configure: Configure, silent: Console
) -> None:
    run = finished(configure, silent, "decode.average=1", "train.final_model=last")
    assert steps_of(candidates(of_kind(run, "average"), best_step=4)) == [[8]]
    found = candidates(of_kind(run, "validated"), best_step=4)
    assert steps_of(found) == [[8], [6, 8], [4, 6, 8], [4]]
    assert found[0].name == "the last checkpoint, step 8"


def validation(loss: float, bleu: float | None = None) -> Validation:
    score = None if bleu is None else Score("BLEU", bleu, "", "signed")
    return Validation(loss, loss, 5, score)


@pytest.mark.parametrize(
    ("by", "values", "wanted"),
    [
        ("loss", [(3.0, 1.0), (2.0, 5.0), (2.5, 9.0)], 1),
        ("bleu", [(3.0, 1.0), (2.0, 5.0), (2.5, 9.0)], 2),
        ("loss", [(2.0, None), (2.0, None)], 0),  # of equals the first, the usual choice
        ("loss", [(math.nan, None), (4.0, None)], 1),
        ("loss", [(math.nan, None), (math.nan, None)], 0),
    ],
)
def test_the_best_by_the_criterion_is_chosen(
    by: str, values: list[tuple[float, float | None]], wanted: int
) -> None:
    found = [Candidate(str(n), [Checkpoint(Path(f"step-{n}"))]) for n in range(len(values))]
    chosen, measured = choose(found, lambda one: validation(*values[int(one.name)]), by)
    assert chosen.name == str(wanted)
    assert [one.name for one in measured] == [one.name for one in found]
    assert all(one.validation is not None for one in measured)


def test_the_final_model_is_the_candidate_with_the_lowest_validation_loss(
    configure: Configure, silent: Console
) -> None:
    """A learning rate at which weights still move far, so that averages differ from the last."""
    run = finished(configure, silent, "train.lr=0.05", "decode.average=4")
    losses: dict[str, float] = {}
    for one in candidates(run, best_step=run.checkpoints()[-1].best_step):
        parts = [load_file(checkpoint.weights) for checkpoint in one.checkpoints]
        model = run.load_model()
        for name, tensor in model.state_dict().items():
            if name in parts[0]:
                mean = sum(part[name].astype("f8") for part in parts) / len(parts)
                tensor.copy_(tensor.new_tensor(mean))
        device = next(model.parameters()).device
        result = held_out_loss(model, run.valid_store(), run.config.train, device)
        losses[one.name] = result.loss
    final = held_out_loss(run.load_model(), run.valid_store(), run.config.train, device)
    assert len({round(loss, 4) for loss in losses.values()}) > 1
    assert final.loss == pytest.approx(min(losses.values()), rel=1e-5)
    best = min(losses, key=lambda name: losses[name])
    card = run.card.read_text()
    assert f"| weights | {best} |" in card
    assert f"| validation | perplexity {final.perplexity:.2f}" in card
    for name in losses:
        assert f"| **{name}** |" in card if name == best else f"| {name} |" in card


def test_the_criterion_may_be_bleu_and_the_card_has_its_numbers(
    configure: Configure, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([10.0, 20.0, 30.0, 40.0, *[5.0, 50.0, 6.0], 50.0])
    monkeypatch.setattr(
        session_module, "valid_score", lambda *_: Score("BLEU", next(scores), "", "signed")
    )
    run = finished(configure, silent, "train.valid_bleu=true", "train.best=bleu")
    card = run.card.read_text()
    assert "BLEU 50.00 (signed)" in card
    assert "| candidate | perplexity | BLEU |" in card
    assert "| 50.00 |" in card


def test_one_candidate_is_not_validated_again(configure: Configure, silent: Console) -> None:
    run = finished(configure, silent, "train.final_model=last")
    assert "candidates" not in run.log.read_text()
    assert "candidate |" not in run.card.read_text()

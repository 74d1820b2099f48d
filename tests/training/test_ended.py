"""A run that has ended: it is left alone, or trained further where more steps are asked for."""

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kutta.config import Config
from kutta.runs import Run
from kutta.runs.checkpoints import list_checkpoints
from kutta.training import session as session_module
from kutta.training.report import Reporter
from kutta.training.run import Outcome, train
from kutta.training.validate import Validation

Configure = Callable[..., Config]


def told(config: Config, **options: Any) -> tuple[Outcome, str]:
    """Train; the outcome, and what was printed."""
    shown = io.StringIO()
    outcome = train(config, console=Console(file=shown), **options)
    return outcome, shown.getvalue()


def everything(run: str | Path) -> dict[str, tuple[int, bytes]]:
    """Time of change and contents of every file and folder of a run."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [Path(run), *Path(run).rglob("*")]
    }


def interrupt(monkeypatch: pytest.MonkeyPatch, config: Config, number: int) -> None:
    """Train until SIGTERM arrives after update `number`."""
    real = Reporter.step

    def step(self: Reporter, record: Any) -> None:
        real(self, record)
        if record.number == number:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Reporter, "step", step)
        assert told(config)[0].ended == "interrupted"


def losses(monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
    left = iter(values)
    monkeypatch.setattr(
        session_module, "held_out_loss", lambda *_: Validation(next(left), 1.0, tokens=5)
    )


@pytest.mark.parametrize("kind", ["validated", "average", "last", "best"])
def test_repeating_the_command_touches_no_file(configure: Configure, kind: str) -> None:
    config = configure(
        f"train.final_model={kind}", "train.valid_bleu=true", "train.tensorboard=true"
    )
    first, _ = told(config)
    before = everything(config.run)
    again, said = told(config)
    assert (again.ended, again.step, again.run) == (first.ended, first.step, first.run)
    assert again.validation is not None
    assert first.validation is not None
    assert again.validation.loss == first.validation.loss
    assert f"{config.run} has already finished at step 8 (final model: the " in said
    assert "); raise train.max_steps to train further\n" in said
    assert said.count("\n") == 1
    assert everything(config.run) == before


def test_a_finished_run_needs_neither_its_text_nor_its_store(
    configure: Configure, tmp_path: Path
) -> None:
    config = configure()
    told(config)
    for name in ("store", "text"):
        Path(config.run, name).rename(tmp_path / name)
    before = everything(config.run)
    assert told(configure(f"data.dir={config.data.dir}"))[0].ended == "finished"
    assert everything(config.run) == before


def test_by_another_path_to_its_folder_nothing_is_touched_either(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure()
    told(config)
    before = everything(config.run)
    monkeypatch.chdir(Path(config.run).parent)
    for path in ("run", "./run/", config.run):
        assert told(Config.load(path))[0].ended == "finished"
        assert told(configure(f"run={path}"))[0].ended == "finished"
    assert everything(config.run) == before


def test_settings_that_do_not_change_the_model_are_saved_and_nothing_else(
    configure: Configure,
) -> None:
    told(configure())
    config = configure("decode.beam=7")
    before = everything(config.run)
    assert "already finished" in told(config)[1]
    after = everything(config.run)
    changed = {Path(path).name for path in after if after[path] != before[path]}
    assert changed == {"config.json", "checksums.json", "run"}
    assert Run.load(config.run).config.decode.beam == 7


def test_a_final_model_that_is_gone_is_written_again(configure: Configure) -> None:
    config = configure()
    told(config)
    for name in ("model.safetensors", "README.md"):
        file = Path(config.run) / name
        content = file.read_bytes()
        file.unlink()
        told(config)
        assert file.read_bytes() == content


def test_a_run_killed_before_the_model_of_its_new_end_does_not_count_as_finished(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """model.safetensors and the card of the old end are still there."""
    told(configure("train.max_steps=4"))
    config = configure()

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session_module, "average", fail)
        with pytest.raises(KeyboardInterrupt):
            told(config)
    old = Path(config.run, "model.safetensors").read_bytes()
    outcome, said = told(config)
    assert (outcome.step, outcome.ended) == (8, "finished")
    assert "already" not in said
    assert Path(config.run, "model.safetensors").read_bytes() != old


def test_raising_max_steps_trains_further(configure: Configure, tmp_path: Path) -> None:
    told(configure("train.max_steps=4"))
    longer = configure()
    outcome, said = told(longer)
    assert (outcome.step, outcome.ended) == (8, "finished")
    assert "resuming from step 4" in said
    straight = configure(f"run={tmp_path / 'straight'}")
    told(straight)
    first, second = (Path(c.run, "model.safetensors").read_bytes() for c in (longer, straight))
    assert first == second


def test_max_steps_below_the_step_reached_ends_the_run_there(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, configure(), 6)
    outcome, said = told(configure("train.max_steps=5"))
    assert (outcome.step, outcome.ended) == (6, "finished")
    sentence = (
        "train.max_steps = 5 is below step 6, which this run has reached: training ends there"
    )
    assert said.startswith(f"{sentence}\n")
    run = Run.load(outcome.run)
    assert run.final_weights.is_file()
    assert run.config.train.max_steps == 6, "its config is true of its model"
    assert [one.step for one in list_checkpoints(run.path)] == [4, 6]
    before = everything(run.path)
    assert sentence in told(configure("train.max_steps=5"))[1]
    assert "already finished at step 6" in told(configure("train.max_steps=6"))[1]
    assert everything(run.path) == before
    assert told(configure())[0].step == 8, "and it may still be trained further"


def test_a_finished_run_stays_finished_where_fewer_steps_are_asked_for(
    configure: Configure,
) -> None:
    told(configure())
    before = everything(configure().run)
    outcome, said = told(configure("train.max_steps=3"))
    assert (outcome.step, outcome.ended) == (8, "finished")
    assert "is below step 8" in said
    assert "already finished at step 8" in said
    assert everything(configure().run) == before


def test_overwrite_with_fewer_steps_starts_over(configure: Configure) -> None:
    told(configure())
    outcome, said = told(configure("train.max_steps=3"), overwrite=True)
    assert outcome.step == 3
    assert "below" not in said


def test_an_early_stop_says_so_and_what_to_raise(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("train.max_steps=50", "train.save_every=2")
    config = configure(*settings, "train.patience=2")
    losses(monkeypatch, 5.0, 4.0, 4.0, 4.5, 1.0)
    assert "early stop at step 8: 2 validations without a new best" in told(config)[1]
    before = everything(config.run)
    outcome, said = told(config)
    assert (outcome.ended, outcome.step) == ("early stop", 8)
    assert "train.patience = 2 validations had no new best; raise it to train further" in said
    assert everything(config.run) == before
    more = configure(*settings, "train.patience=3", "train.max_steps=10")
    assert told(more)[0].step == 10


# ---- what is said at the start --------------------------------------------------------------


def test_tokens_are_those_of_the_config_and_micro_batches_are_a_detail(
    configure: Configure,
) -> None:
    _, said = told(configure("train.accumulate=2", "train.pieces=4", "train.lanes=1"))
    assert "updates of 2 x 160 tokens, about " in said
    assert ", 4 micro-batches per batch\n" in said
    assert "tokens per epoch" not in said
    _, said = told(configure("train.pieces=1"), overwrite=True)
    assert "updates of 160 tokens, about 5 updates per epoch, device cpu\n" in said


@pytest.mark.parametrize(
    ("smoothing", "sentence"),
    [
        (
            "0.1",
            "loss is the cross-entropy per target token with label smoothing 0.1, ppl (perplexity) "
            "is exp(cross-entropy) without it",
        ),
        ("0.0", "loss is the cross-entropy per target token, ppl (perplexity) is exp(loss)"),
    ],
)
def test_loss_and_perplexity_are_explained_once(
    configure: Configure, smoothing: str, sentence: str
) -> None:
    config = configure(f"train.label_smoothing={smoothing}")
    _, said = told(config)
    assert said.splitlines().count(sentence) == 1
    assert sentence in Path(config.run, "train.log").read_text()

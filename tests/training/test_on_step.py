"""train(on_step=...): a function that sees every update, for one's own loops and dashboards."""

import dataclasses
import inspect
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import kutta
from kutta import Config, InputError, Step
from kutta.runs import Run
from kutta.runs.checkpoints import list_checkpoints
from kutta.runs.division import Division
from kutta.training import run as run_module
from kutta.training.run import train

Configure = Callable[..., Config]


def test_every_update_is_seen_with_its_validation(configure: Configure, silent: Console) -> None:
    steps: list[Step] = []
    config = configure("train.valid_bleu=true")
    train(config, console=silent, on_step=steps.append)
    records = Run.load(config.run).records()
    trained = [record for record in records if record["kind"] == "train"]  # log_every = 1
    assert [step.number for step in steps] == list(range(1, 9))
    assert [step.loss for step in steps] == [record["loss"] for record in trained]
    assert [step.lr for step in steps] == [record["lr"] for record in trained]
    assert [step.tokens for step in steps] == [record["tokens"] for record in trained]
    for step, record in zip(steps, trained, strict=True):
        assert step.perplexity == math.exp(step.nll) == pytest.approx(record["perplexity"])
        assert step.tokens_per_second == pytest.approx(record["tokens_per_second"])
    valid = {r["step"]: r["loss"] for r in records if r["kind"] == "valid"}
    seen = {step.number: step.validation for step in steps if step.validation is not None}
    assert {number: found.loss for number, found in seen.items()} == valid
    assert [*valid] == [4, 8]
    assert all(found.bleu is not None for found in seen.values())


def test_an_exception_saves_and_is_raised_and_the_run_resumes_exactly(
    configure: Configure, silent: Console, tmp_path: Path
) -> None:
    config = configure()

    def stop(step: Step) -> None:
        if step.number == 6:
            raise ZeroDivisionError("enough")

    with pytest.raises(ZeroDivisionError, match="enough"):
        train(config, console=silent, on_step=stop)
    assert [one.step for one in list_checkpoints(Path(config.run))] == [4, 6]
    log = Path(config.run, "train.log").read_text()
    assert "on_step raised ZeroDivisionError: saved at step 6" in log
    assert train(config, console=silent).ended == "finished"
    straight = configure(f"run={tmp_path / 'straight'}")
    train(straight, console=silent)
    first, second = (Path(c.run, "model.safetensors").read_bytes() for c in (config, straight))
    assert first == second


def test_an_exception_after_the_last_update_leaves_only_the_final_model_to_make(
    configure: Configure, silent: Console
) -> None:
    config = configure()

    def stop(step: Step) -> None:
        if step.number == 8:
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        train(config, console=silent, on_step=stop)
    assert not Path(config.run, "model.safetensors").exists()
    assert train(config, console=silent).step == 8
    assert Path(config.run, "model.safetensors").is_file()


def test_it_cannot_be_called_from_other_processes(
    configure: Configure, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "divide", lambda *_: Division(1, 4, 1, 1))
    monkeypatch.setattr(run_module, "launch", lambda *_: pytest.fail("nothing is launched"))
    with pytest.raises(InputError, match=r"the 4 processes .* train\.workers = 1, or .* torchrun"):
        train(configure(), console=silent, on_step=print)


RANKS = """
import json, os, sys
from pathlib import Path
from kutta import Config, train
seen = []
outcome = train(Config.load(sys.argv[1]), on_step=lambda step: seen.append(step.number))
Path(sys.argv[1]).with_name(f"seen-{os.environ['RANK']}.json").write_text(json.dumps(seen))
"""


def test_with_torchrun_only_rank_0_calls_it(configure: Configure, tmp_path: Path) -> None:
    config = configure("train.accumulate=2", "train.max_steps=3", "train.threads=1")
    (tmp_path / "config.json").write_text(config.to_json())
    (tmp_path / "mine.py").write_text(RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run(
        [*command, str(tmp_path / "mine.py"), str(tmp_path / "config.json")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=True,
    )
    # Each rank writes a file: torchrun mixes the lines of what ranks print.
    seen = [json.loads((tmp_path / f"seen-{rank}.json").read_text()) for rank in range(2)]
    assert seen == [[1, 2, 3], []]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_steps": 9}, r'no option max_steps, which .* \["train\.max_steps=9"\]'),
        ({"overwrit": True}, r"There is no option overwrit; did you mean overwrite\?"),
        ({"overwrite": "yes"}, r"overwrite = 'yes' is not valid: it must be True or False\."),
        ({"on_step": 3}, r"on_step = 3 is not valid: it must be a function of a Step\."),
    ],
    ids=str,
)
def test_wrong_options_get_a_sentence_and_nothing_is_done(
    configure: Configure, options: dict[str, Any], told: str
) -> None:
    config = configure()
    with pytest.raises(InputError, match=told):
        train(config, **options)
    assert not Path(config.run).exists()


@pytest.mark.parametrize("config", ["mine.toml", Path("mine.toml")])
def test_a_path_is_not_a_config(config: Any) -> None:
    with pytest.raises(InputError, match=r"train needs a Config, such as Config\.load\('mine\.t"):
        train(config)


def test_the_signature_is_readable() -> None:
    shown = inspect.signature(kutta.train)
    assert [*shown.parameters] == ["config", "overwrite", "console", "on_step"]
    assert "on_step" in (train.__doc__ or "")


def test_the_example_of_the_page_works_as_written(
    configure: Configure,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = Path(__file__).parents[2] / "docs" / "training.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("mine.json").write_text(configure().to_json())
    exec(example.replace("mine.toml", "mine.json"), {"__name__": "example"})
    shown = capsys.readouterr().out
    assert shown.count("\nvalidation ") == 2
    assert "\n8 " in shown


def test_the_page_lists_every_attribute() -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    table = page.partition("| attribute of `Step`")[2]
    fields = {field.name for field in dataclasses.fields(Step)}
    for name in fields | {"perplexity", "tokens_per_second"}:
        assert f"`{name}`" in table, name

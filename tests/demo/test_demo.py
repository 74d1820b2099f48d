"""The demo: what a newcomer runs first."""

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from kutta.config import Config
from kutta.demo import demo


def test_the_demo_shows_samples_scores_a_picture_and_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = demo.demo_config

    def quick(folder: Path, solver: str, seed: int) -> Config:
        values = full(folder, solver, seed).model_dump()
        values["train"] |= {"max_steps": 4, "save_every": 2, "valid_every": 4, "log_every": 1}
        values["model"] |= {"d_model": 16, "ffn": 16, "heads": 2}
        return Config.parse(values)

    monkeypatch.setattr(demo, "demo_config", quick)
    monkeypatch.setattr(demo, "PAIRS", {"train": 300, "valid": 10, "test": 12})
    console = Console(record=True, width=120, file=io.StringIO())
    demo.run_demo(tmp_path, "rk2", 1, False, console)
    shown = console.export_text()
    for part in ("never seen", "BLEU", "training.png", "kutta translate", "kutta info"):
        assert part in shown
    assert (tmp_path / "run-rk2-1" / "training.png").stat().st_size > 10_000
    assert (tmp_path / "text-1" / "train.en").read_text().count("\n") == 300


def test_a_method_without_gamma_gets_none() -> None:
    assert demo.demo_config(Path("x"), "rk4", 1).model.gamma == "learned"
    assert demo.demo_config(Path("x"), "leapfrog", 1).model.gamma == "tableau"


@pytest.mark.slow
def test_the_demo_reaches_80_bleu_in_five_minutes(tmp_path: Path) -> None:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kutta", "demo", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    bleu = re.search(r"sacreBLEU = ([\d.]+)", done.stdout)
    assert bleu is not None
    assert float(bleu[1]) >= 80.0
    assert time.perf_counter() - started < 300

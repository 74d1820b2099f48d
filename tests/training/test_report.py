"""What a training tells: one line per log_every, records a program can read, time left."""

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kutta.config import Config
from kutta.errors import InputError
from kutta.metrics import Score
from kutta.runs import Run
from kutta.runs.run import read_records
from kutta.training.loop import Step
from kutta.training.report import Reporter, recorded_validation
from kutta.training.validate import Validation, improves

SCORE = Score("BLEU", 12.5, "", "tok:none|version:x")


def step(number: int, **changes: Any) -> Step:
    """An update of 1000 tokens in half a second with a loss of 3 and an nll of 2."""
    values: dict[str, Any] = {
        "epoch": 0,
        "loss": 3.0,
        "nll": 2.0,
        "lr": 0.001,
        "grad_norm": 1.5,
        "tokens": 1000,
        "skipped": False,
        "seconds": 0.5,
    }
    return Step(number, **(values | changes))


def run_at(path: Path, **train: Any) -> Run:
    data = {"dir": "d", "source": "a", "target": "b"}
    return Run(path, Config.parse({"run": str(path), "data": data, "train": train}))


def reporter(
    path: Path,
    first: int = 0,
    every: int = 1,
    tensorboard: bool = False,
    console: Console | None = None,
) -> tuple[Reporter, Any]:
    """A reporter of 100 steps, and what its console shows."""
    shown = io.StringIO()
    run = run_at(path, max_steps=100, log_every=every, tensorboard=tensorboard)
    return Reporter(run, first, console or Console(file=shown, width=60)), shown


def log_of(run: Path) -> list[str]:
    return (run / "train.log").read_text().splitlines()


def test_one_line_per_log_every_where_there_is_no_terminal(tmp_path: Path) -> None:
    report, shown = reporter(tmp_path, every=10)
    with report:
        for number in range(1, 36):
            report.step(step(number))
    lines = shown.getvalue().splitlines()
    assert [line.split()[:2] for line in lines] == [["step", "10"], ["step", "20"], ["step", "30"]]
    assert lines == log_of(tmp_path), "the same lines in train.log, and none is wrapped"
    assert [record["step"] for record in read_records(tmp_path / "metrics.jsonl")] == [10, 20, 30]


def test_a_terminal_sees_a_bar_and_the_log_gets_the_lines(tmp_path: Path) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    report, _ = reporter(tmp_path, every=10, console=console)
    with report:
        for number in range(1, 21):
            report.step(step(number))
        report.bar.refresh()
    assert "step 20/100" in shown.getvalue()
    assert report.bar.live.transient, "it leaves nothing behind on the screen"
    assert re.search(r"loss 3\.000  2,000 tokens/s  0:00:40 left\s", shown.getvalue())
    assert "ppl" not in shown.getvalue(), "the lines of the log would only repeat the bar"
    assert len(log_of(tmp_path)) == 2


def test_tokens_per_second_and_time_left(tmp_path: Path) -> None:
    report, shown = reporter(tmp_path, every=20)
    with report:
        for number in range(1, 21):
            report.step(step(number))
    assert "2,000 tokens/s  0:00:40 left" in shown.getvalue()
    (record,) = read_records(tmp_path / "metrics.jsonl")
    assert record["tokens_per_second"] == pytest.approx(2000)


def test_the_speed_of_a_line_is_tokens_by_seconds_not_a_mean_of_speeds(tmp_path: Path) -> None:
    report, _ = reporter(tmp_path, every=2)
    with report:
        report.step(step(1, tokens=1000, seconds=1.0))
        report.step(step(2, tokens=100, seconds=9.0))
    assert read_records(tmp_path / "metrics.jsonl")[0]["tokens_per_second"] == pytest.approx(110)


def test_at_the_end_no_time_is_left(tmp_path: Path) -> None:
    report, shown = reporter(tmp_path)
    with report:
        report.step(step(100))
    assert "0:00:00 left" in shown.getvalue()


def test_a_record_holds_means_over_its_window_only(tmp_path: Path) -> None:
    report, _ = reporter(tmp_path, every=2)
    with report:
        for number, loss in enumerate([1.0, 3.0, 10.0, 20.0], start=1):
            report.step(step(number, loss=loss, nll=loss / 2, grad_norm=loss * 2, epoch=number))
    first, second = read_records(tmp_path / "metrics.jsonl")
    assert first == {
        "kind": "train",
        "step": 2,
        "epoch": 2,
        "loss": 2.0,
        "perplexity": math.exp(1.0),
        "lr": 0.001,
        "grad_norm": 4.0,
        "tokens": 2000,
        "tokens_per_second": 2000.0,
        "skipped": 0,
    }
    assert (second["loss"], second["grad_norm"]) == (15.0, 30.0)


def test_skipped_steps_are_told_counted_and_left_out_of_the_means(tmp_path: Path) -> None:
    report, shown = reporter(tmp_path, every=3)
    with report:
        report.step(step(1, loss=1.0))
        report.step(step(2, loss=math.nan, nll=math.nan, grad_norm=math.inf, skipped=True))
        report.step(step(3, loss=2.0))
    assert "step 2: the loss or a gradient was not finite; update skipped" in shown.getvalue()
    (record,) = read_records(tmp_path / "metrics.jsonl")
    assert (record["loss"], record["skipped"], record["grad_norm"]) == (1.5, 1, 1.5)


def test_where_all_steps_were_skipped_there_is_no_loss(tmp_path: Path) -> None:
    """And the file stays JSON, which knows no nan."""
    report, shown = reporter(tmp_path, every=2)
    with report:
        for number in (1, 2):
            report.step(step(number, loss=math.nan, nll=math.nan, skipped=True))
    (record,) = strict_records(tmp_path)
    assert (record["loss"], record["perplexity"], record["skipped"]) == (None, None, 2)
    assert "loss nan" in shown.getvalue()
    assert "loss 0.000" not in shown.getvalue()


def strict_records(run: Path) -> list[dict[str, Any]]:
    """The records as a parser that keeps to the standard sees them."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    lines = (run / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=refuse) for line in lines]
    assert all(len(record.pop("crc32")) == 8 for record in records)
    return records


def test_a_validation_is_recorded_with_the_signature_of_its_score(tmp_path: Path) -> None:
    report, shown = reporter(tmp_path)
    with report:
        report.validation(7, Validation(2.5, 2.0, 90, SCORE), new_best=True)
        report.validation(9, Validation(math.nan, math.nan, 90), new_best=False)
    first, second = strict_records(tmp_path)
    assert first == {
        "kind": "valid",
        "step": 7,
        "loss": 2.5,
        "nll": 2.0,
        "tokens": 90,
        "perplexity": math.exp(2.0),
        "bleu": 12.5,
        "signature": "tok:none|version:x",
    }
    assert (second["loss"], second["bleu"], second["signature"]) == (None, None, None)
    lines = shown.getvalue().splitlines()
    assert lines[0] == "step 7  validation loss 2.500  ppl 7.39  BLEU 12.50  (best so far)"
    assert "best" not in lines[1]


def test_the_last_validation_comes_back(tmp_path: Path) -> None:
    assert recorded_validation(run_at(tmp_path)) is None
    report, _ = reporter(tmp_path)
    with report:
        report.validation(1, Validation(9.0, 9.0, 1), new_best=True)
        report.validation(2, Validation(2.5, 2.0, 90, SCORE), new_best=True)
        report.step(step(3))
    assert recorded_validation(run_at(tmp_path)) == Validation(2.5, 2.0, 90, SCORE)


def test_resuming_forgets_what_will_be_done_again(tmp_path: Path) -> None:
    report, _ = reporter(tmp_path)
    with report:
        for number in range(1, 8):
            report.step(step(number))
        report.validation(4, Validation(1.0, 1.0, 1), new_best=True)
        report.validation(6, Validation(1.0, 1.0, 1), new_best=False)
    report, _ = reporter(tmp_path, first=5)
    with report:
        for number in range(6, 10):
            report.step(step(number))
    records = read_records(tmp_path / "metrics.jsonl")
    assert [r["step"] for r in records if r["kind"] == "train"] == list(range(1, 10))
    assert [r["step"] for r in records if r["kind"] == "valid"] == [4]


def test_a_line_cut_short_by_a_crash_is_dropped(tmp_path: Path) -> None:
    report, _ = reporter(tmp_path)
    with report:
        report.step(step(1))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 2, "lo')
    assert [record["step"] for record in read_records(tmp_path / "metrics.jsonl")] == [1]
    report, _ = reporter(tmp_path, first=1)
    with report:
        report.step(step(2))
    assert [record["step"] for record in strict_records(tmp_path)] == [1, 2]


def test_no_records_are_no_error(tmp_path: Path) -> None:
    assert read_records(tmp_path / "metrics.jsonl") == []


def test_records_are_on_disk_at_once(tmp_path: Path) -> None:
    """A killed process loses none."""
    report, _ = reporter(tmp_path)
    with report:
        report.step(step(1))
        assert [record["step"] for record in strict_records(tmp_path)] == [1]
        assert len(log_of(tmp_path)) == 1
    assert report.log.closed
    assert report.metrics.closed


@pytest.mark.parametrize("name", ["metrics.jsonl", "train.log"])
def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path, name: str) -> None:
    """/dev/full is a file on a disk that is always full."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    (tmp_path / name).symlink_to("/dev/full")
    report, _ = reporter(tmp_path)

    def fail() -> None:
        with report:
            report.step(step(1))

    with pytest.raises(InputError, match=rf"{name}: No space left on device.*run the same command"):
        fail()


def test_a_log_that_cannot_be_opened_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.log").mkdir()
    with pytest.raises(InputError, match=r"Cannot write .*train\.log"):
        reporter(tmp_path)


def test_text_is_shown_as_it_is(tmp_path: Path) -> None:
    """No markup is read from it, and long lines are not broken."""
    report, shown = reporter(tmp_path)
    with report:
        report.info("[bold]a[/bold] " + "x" * 100)
    assert shown.getvalue() == "[bold]a[/bold] " + "x" * 100 + "\n"


def test_tensorboard_gets_the_same_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    report, _ = reporter(tmp_path, tensorboard=True)
    with report:
        report.step(step(1, loss=4.0))
        report.step(step(2, loss=math.nan, nll=math.nan, skipped=True))
        report.validation(2, Validation(2.5, 2.0, 90, SCORE), new_best=True)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 4.0)]
    assert [(e.step, e.value) for e in events.Scalars("valid/bleu")] == [(2, 12.5)]


class Events:
    """Takes the place of TensorBoard's writer."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []
        self.closed = False

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.scalars.append((tag, scalar_value, global_step))

    def close(self) -> None:
        self.closed = True


def test_tensorboard_is_closed_in_the_end_and_resumes_behind_the_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, int]] = []
    events = Events()

    def writer(folder: str, purge_step: int) -> Events:
        made.append((folder, purge_step))
        return events

    monkeypatch.setattr("torch.utils.tensorboard.writer.SummaryWriter", writer)
    report, _ = reporter(tmp_path, first=5, every=2, tensorboard=True)
    with report:
        report.step(step(6, nll=math.log(8.0), tokens=30, seconds=2.0))
        assert not events.closed
    assert events.closed
    assert made == [(str(tmp_path / "tensorboard"), 6)]
    assert ("train/perplexity", pytest.approx(8.0), 6) in events.scalars
    assert ("train/tokens_per_second", 15.0, 6) in events.scalars
    assert {tag for tag, _, _ in events.scalars} == {
        *("train/loss", "train/perplexity", "train/lr"),
        *("train/grad_norm", "train/tokens_per_second"),
    }


def test_a_hopeless_loss_and_a_step_without_time_can_be_written(tmp_path: Path) -> None:
    report, _ = reporter(tmp_path)
    with report:
        report.step(step(1, nll=800.0, seconds=0.0))
        assert report.rate == pytest.approx(1000 / 1e-9)
    (record,) = strict_records(tmp_path)
    assert record["perplexity"] == math.exp(50.0)
    assert record["tokens_per_second"] == pytest.approx(1000 / 1e-9)


def test_a_line_of_the_log_has_every_number(tmp_path: Path) -> None:
    report, _ = reporter(tmp_path, every=2)
    with report:
        report.step(step(1, loss=4.0, nll=2.0, epoch=3))
        report.step(step(2, loss=2.0, nll=1.0, epoch=3, lr=0.00123))
    assert log_of(tmp_path) == [
        "step 2  epoch 3  loss 3.000  ppl 4.48  lr 1.23e-03  2,000 tokens/s  0:00:49 left"
    ]


def test_the_speed_shown_follows_slowly(tmp_path: Path) -> None:
    """19 parts of what it was and one of the new: 95 % of 2,000 and 5 % of 4,000."""
    report, _ = reporter(tmp_path, every=10)
    with report:
        report.step(step(1))
        report.step(step(2, seconds=0.25))
        assert report.rate == pytest.approx(0.95 * 2000 + 0.05 * 4000)
        assert report.bar.tasks[0].description.endswith("0:00:46 left")  # 98 x 1000 / 2100
        assert report.bar.tasks[0].completed == 2


def test_the_validation_of_a_step_is_found_by_its_number(tmp_path: Path) -> None:
    report, _ = reporter(tmp_path)
    with report:
        report.step(step(4))
        report.validation(4, Validation(9.0, 8.0, 1), new_best=True)
        report.validation(6, Validation(2.5, 2.0, 90, SCORE), new_best=False)
    assert recorded_validation(run_at(tmp_path), 4) == Validation(9.0, 8.0, 1)
    assert recorded_validation(run_at(tmp_path), 6) == Validation(2.5, 2.0, 90, SCORE)
    assert recorded_validation(run_at(tmp_path), 5) is None


# ---- which validation is the best -----------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "best", "better"),
    [
        (2.0, None, True),
        (2.0, 2.5, True),
        (2.0, 2.0, False),
        (3.0, 2.5, False),
        (math.nan, None, False),
        (math.inf, None, False),
        (math.nan, 2.0, False),
    ],
)
def test_a_smaller_loss_is_better(loss: float, best: float | None, better: bool) -> None:
    """And one that is not finite never is: nothing could be smaller than nan afterwards."""
    assert improves(Validation(loss, loss, 1), best, "loss")[0] is better


@pytest.mark.parametrize(
    ("best", "better"), [(None, True), (12.0, True), (12.5, False), (20.0, False)]
)
def test_a_larger_bleu_is_better(best: float | None, better: bool) -> None:
    assert improves(Validation(1.0, 1.0, 1, SCORE), best, "bleu") == (better, 12.5)

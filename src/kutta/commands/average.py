"""`kutta average`: one model from several checkpoints of a run."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kutta.box import is_in_box
from kutta.errors import InputError
from kutta.files import followed, write_text
from kutta.model.weights import is_ours, read_shapes
from kutta.parsing import record_line
from kutta.runs import Checkpoint, Run, locked
from kutta.runs.checkpoints import FOLDER, average, regular_checkpoints
from kutta.training.card import model_card
from kutta.training.report import recorded_validation


def average_run(
    folder: Path, last: int | None = None, steps: Sequence[int] = (), output: Path | None = None
) -> str:
    """Average checkpoints of a run; return a message."""
    run = Run.load(folder)
    if run.checkpoint:
        raise InputError(
            f"{folder} is one checkpoint; give its run, {run.path}, and choose checkpoints with "
            "--last or --step."
        )
    chosen = _chosen(run, last, steps)
    target = followed(output) if output else run.final_weights
    _check_output(target, run)
    with ExitStack() as held:
        if output is None:  # training must not write the same file
            held.enter_context(locked(run.path))
        average(chosen, target)
        names = ", ".join(one.path.name for one in chosen)
        made = f"the average of {names}" if len(chosen) > 1 else f"the weights of {names}"
        if output is None:
            _record(run, chosen, made)
    return f"{target}: {made}"


def _record(run: Run, chosen: Sequence[Checkpoint], made: str) -> None:
    """Note in the records and in the card of the run what its final model is now."""
    step = run.checkpoints()[-1].step
    record = {"kind": "average", "step": step, "weights": made}
    kept = [one for one in run.records() if one["kind"] != "average"]  # the same if repeated
    write_text(run.metrics, "".join(map(record_line, [*kept, record])))
    validation = recorded_validation(run, chosen[0].step) if len(chosen) == 1 else None
    count = sum(map(math.prod, read_shapes(run.final_weights).values()))
    write_text(run.card, model_card(run.config, step, count, validation, made))


def _chosen(run: Run, last: int | None, steps: Sequence[int]) -> list[Checkpoint]:
    """The checkpoints to average."""
    saved = {one.step: one for one in run.checkpoints()}
    if not saved:
        finished = "is a finished model" if is_in_box(run.path) else "has not saved any yet"
        raise InputError(
            f"{run.path} has no checkpoints to average: it {finished}; give a run with checkpoints."
        )
    if last is not None and steps:
        raise InputError("--last and --step both choose checkpoints; give one of them.")
    if missing := [step for step in steps if step not in saved]:
        have = ", ".join(map(str, saved))
        raise InputError(f"{run.path} has no checkpoint of step {missing[0]}; it has: {have}.")
    if twice := [step for step in steps if steps.count(step) > 1]:
        raise InputError(f"--step {twice[0]} is given twice; give each step once.")
    if steps:
        return [saved[step] for step in steps]
    regular = regular_checkpoints(run.path)
    if last is not None and not 1 <= last <= len(regular):
        raise InputError(
            f"--last {last} is not possible: {run.path} has {len(regular)} checkpoints to average "
            f"(steps {', '.join(str(one.step) for one in regular)}); choose 1 to {len(regular)}."
        )
    return regular[-(last or run.config.decode.average) :]


def _check_output(target: Path, run: Run) -> None:
    """Reject a file that must not be written."""
    if is_in_box(target):
        raise InputError(
            f"{target} belongs to a model in the box, which is not changed; give --output FILE."
        )
    if target.suffix != ".safetensors":
        raise InputError(
            f"{target} does not end in .safetensors, the format of the weights; give a file name "
            "that does."
        )
    if target.absolute().is_relative_to((run.path / FOLDER).absolute()):
        raise InputError(
            f"{target} is in the checkpoints of the run, which training needs as they are; give a "
            "file somewhere else."
        )
    if target.exists() and not is_ours(target):
        raise InputError(
            f"{target} exists and was not written by Kutta, so it is not replaced; give another "
            "file name."
        )

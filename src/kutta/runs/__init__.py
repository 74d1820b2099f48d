"""`Run`, a run directory as a type: self-contained and movable."""

from kutta.runs.checkpoints import Checkpoint
from kutta.runs.device import choose_device, resolve
from kutta.runs.opening import check_same, check_text, locked, open_run
from kutta.runs.preparing import prepare_run
from kutta.runs.run import Run

__all__ = [
    "Checkpoint",
    "Run",
    "check_same",
    "check_text",
    "choose_device",
    "locked",
    "open_run",
    "prepare_run",
    "resolve",
]

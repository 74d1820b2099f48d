"""A rank launched by `kutta train`: python -m kutta.training.parallel.worker

Its arguments are the run, the file for the outcome, the launcher's process id, and 1 for no output.
"""

import ctypes
import os
import signal
import socket
import sys
import warnings
from pathlib import Path

from rich.console import Console
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from kutta.data.workers import end_with
from kutta.errors import InputError, show_warning
from kutta.files import write_json
from kutta.runs import Run
from kutta.runs.division import Machine, divide
from kutta.training.parallel.group import join
from kutta.training.run import local_device, work


def main() -> None:
    """Train as the rank given by the environment."""
    folder, outcome, launcher, quiet = sys.argv[1:]
    warnings.showwarning = show_warning
    _killed_with_parent()
    end_with(int(launcher))
    # The ranks are on this machine, whatever its name resolves to.
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    errors = get_error_handler()
    errors.initialize()
    run = Run.load(folder)
    try:
        device = local_device(run.config.train.device)
        with join(device) as group:
            division = divide(run.config, device, Machine.here())  # as in the launcher
            result = work(run, division, group, device, Console(quiet=quiet == "1"))
            if group.is_main:
                write_json(Path(outcome), {"step": result.step, "ended": result.ended})
    except InputError as error:
        errors.record_exception(error)
        sys.exit(2)


def _killed_with_parent() -> None:
    """Let Linux kill this process when the launcher dies.

    A thread that watches is not enough: when a peer dies, torch may join gloo's threads while it
    holds the interpreter lock that one of them waits for, and then no thread runs again.
    """
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()

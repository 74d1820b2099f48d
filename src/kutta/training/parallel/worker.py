"""A rank launched by `kutta train`: python -m kutta.training.parallel.worker

Its arguments are the run, the file for the outcome, lanes, threads, the launcher's process id,
and 1 for no output.
"""

import os
import socket
import sys
import threading
import time
from pathlib import Path

from rich.console import Console
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from kutta.errors import InputError
from kutta.files import write_json
from kutta.runs import Run
from kutta.runs.division import Division
from kutta.training.parallel.group import join
from kutta.training.run import local_device, work


def main() -> None:
    """Train as the rank given by the environment."""
    run, outcome, lanes, threads, launcher, quiet = sys.argv[1:]
    threading.Thread(target=_end_with, args=(int(launcher),), daemon=True).start()
    # The ranks are on this machine, whatever its name resolves to.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
    errors = get_error_handler()
    errors.initialize()
    loaded = Run.load(run)
    settings = loaded.config.train
    try:
        device = local_device(settings.device)
        with join(device) as group:
            division = Division(settings.pieces, group.world_size, int(lanes), int(threads))
            result = work(loaded, division, group, device, Console(quiet=quiet == "1"))
            if group.is_main:
                write_json(Path(outcome), {"step": result.step, "ended": result.ended})
    except InputError as error:
        errors.record_exception(error)
        sys.exit(2)


def _end_with(launcher: int) -> None:
    """Exit when the launcher is gone: it may have been killed."""
    while os.getppid() == launcher:
        time.sleep(0.5)
    os._exit(2)


def _loopback() -> str:
    """The name of the loopback interface."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))


if __name__ == "__main__":
    main()

"""The exceptions that are meant for the user, and warnings."""

import sys


class InputError(Exception):
    """Wrong input. The message is one sentence: what is wrong, where, and what to do.

    The command line prints the message and exits with code 2.
    """

    rank: int = 0  # the rank that reports it, where it is not an error of all ranks


class Unreadable(InputError):
    """A file that is there but cannot be read, for lack of permission or by a failing disk."""


# The packages of the extra `train`; an installation that only translates has none of them.
TRAIN = frozenset(
    [
        "matplotlib",
        "onnx",
        "pooch",
        "pyarrow",
        "requests",
        "sacrebleu",
        "sacremoses",
        "safetensors",
        "tensorboard",
        "torch",
        "urllib3",
    ]
)


def not_installed(error: ModuleNotFoundError) -> Exception:
    """What is told where a package of the extra `train` is missing; other errors stay."""
    name = (error.name or "").partition(".")[0]
    if name not in TRAIN:
        return error
    return InputError(
        f"This needs {name}, which is not installed; run `pip install 'kutta[train]'`. Without it "
        "Kutta translates with models that `kutta export` wrote."
    )


def show_warning(message: Warning | str, *_: object) -> None:
    """Print a warning as one sentence on standard error, never among results."""
    print(f"kutta: {message}", file=sys.stderr)

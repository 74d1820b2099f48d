"""Models by their name on the Hugging Face hub, such as owner/name; needs the extra kutta[hub]."""

import os
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kutta import __version__
from kutta.box import CARD, find_run
from kutta.config import CONFIG, WEIGHTS
from kutta.errors import InputError

# The files that translation reads; nothing else of a repository is downloaded.
FILES = (
    *(CONFIG, CARD, "checksums.json", "README.md", WEIGHTS),
    *("tokenizer*.model", "vocab*.txt", "export.json", "encoder.onnx", "decoder.onnx"),
    "shortlist.npz",
)
_NAME = re.compile(r"(?!runs/)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # not our own folder runs


def find_model(given: str | Path) -> Path:
    """The folder of a run, a model in the box, or a model of the hub, which is downloaded once.

    The hub is asked only if neither the folder nor the one that would contain it exists.
    """
    try:
        return find_run(given)
    except InputError:
        if not is_hub_name(given):
            raise
    name = Path(given).as_posix()
    if find_spec("huggingface_hub") is None:
        raise InputError(
            f"There is no folder {name}; for a model of that name on the Hugging Face hub, install "
            "pip install 'kutta[hub]' first."
        )
    return download(name)


def is_hub_name(given: str | Path) -> bool:
    """Whether this may be the name of a model of the hub: no such folder is here."""
    name = Path(given).as_posix()
    return bool(_NAME.fullmatch(name)) and not os.path.exists(name.partition("/")[0])


def download(name: str) -> Path:
    """The folder of a model of the hub in the local cache; files that are there are not loaded.

    HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE of huggingface_hub have their usual effect.
    """
    hub: Any = import_module("huggingface_hub")
    try:
        folder = hub.snapshot_download(
            name,
            allow_patterns=[*FILES],
            endpoint=os.environ.get("HF_ENDPOINT") or None,
            library_name="kutta",
            library_version=__version__,
        )
    except hub.errors.RepositoryNotFoundError as error:
        raise InputError(
            f"There is no folder {name} and no public model of that name on the Hugging Face hub; "
            "check the name, or log in with `hf auth login` if it is private."
        ) from error
    except Exception as error:  # also of the libraries for HTTP that the hub's library uses
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"Cannot download {name} from the Hugging Face hub ({reason}); check the connection "
            "and run the same command again; complete files are kept."
        ) from error
    if not (Path(folder) / CONFIG).is_file():
        raise InputError(
            f"The model {name} of the Hugging Face hub has no {CONFIG}, so it is not a Kutta run; "
            "give the name of one."
        )
    return Path(folder)

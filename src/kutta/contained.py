"""A model directory is data: it holds files and folders of its own, and leads nowhere else."""

import os
from pathlib import Path

from kutta.box import is_in_box
from kutta.errors import InputError


def check_contained(folder: Path) -> None:
    """Reject a model directory with a link that leads out of it, a pipe, a socket or a device.

    So no command that is given a downloaded model reads or writes anywhere else, or waits for ever.
    The folder itself may be a link, and links may lead to other files of the run.
    """
    if is_in_box(folder):  # as it was installed; installers may use links
        return
    root, folders = Path(os.path.realpath(folder)), [str(folder)]
    # The cache of the Hugging Face hub keeps the contents of files beside their snapshots.
    roots = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
    while folders:
        try:
            with os.scandir(folders.pop()) as found:
                entries = list(found)
        except FileNotFoundError:  # pruned meanwhile
            continue
        except OSError as error:
            raise InputError(
                f"Cannot read {error.filename}: {error.strerror}; check its permissions."
            ) from None
        for entry in entries:
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                if not any(Path(target).is_relative_to(one) for one in roots):
                    raise InputError(
                        f"{entry.path} is a link to {target}, outside of the folder; a model has "
                        "to be complete in itself, so replace the link by a copy."
                    )
            elif entry.is_dir():
                folders.append(entry.path)
            elif not entry.is_file() and os.path.lexists(entry.path):
                raise InputError(
                    f"{entry.path} is not an ordinary file, so {folder} is not a model; remove it."
                )

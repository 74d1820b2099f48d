"""Model directories that somebody made to do harm, at random: commands treat them as data.

Beside the directory is a secret that no command may open. Its checksums are those of the hostile
files, or are gone, because who writes a directory writes them too.
"""

import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from kutta.integrity import MANIFEST, write_manifest
from tests.faults.children import in_child, run
from tests.faults.tally import Tally

SECRET = "ba be\nbi bo\n"
SECRETS = ("secret", "secret.xx", "secret.yy", "secret.toml", "secret.safetensors")
SLOW, MUCH = 60.0, 500  # seconds, and MB more than a command on a good directory
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 3, 10**6, 10**12, 10**18, 2**63, 10**30, 1e300, -0.5, "", "x", "\0"),
    *("../secret", "/etc/passwd", "../../secret", "x" * 5000, "\x1b[31m", "a\nb", "\ud800"),
    *([], {}, [[]], ["../secret"], {"a": 1}, [1] * 1000, "rk4", "custom", "1/0", "nan", "split"),
)
LINKS = ("../secret", "../../secret.yy", "/etc/passwd", "/", "..", "/dev/zero", "/proc/self/mem")
FILES = {
    "run": (
        *("config.json", "model.safetensors", "tokenizer.model", "metrics.jsonl", "README.md"),
        *("text", "text/valid.source", "text/test/test.source", "store", "store/train.arrow"),
        *("checkpoints", "checkpoints/step-00000004", "checkpoints/step-00000004/state.json"),
        *("checkpoints/step-00000004/model.safetensors", "hypotheses", "store/report.json"),
    ),
    "exported": (
        *("export.json", "config.json", "tokenizer.model", "encoder.onnx", "decoder.onnx"),
    ),
}
DOCUMENTS = {
    "run": (
        *("config.json", "config.json", "config.json"),
        *("store/report.json", "checkpoints/step-00000004/state.json"),
    ),
    "exported": ("export.json", "export.json", "config.json"),
}
COMMANDS = {
    "run": (
        *(("translate", "run", "in.txt"), ("evaluate", "run"), ("info", "run")),
        *(("info", "run", "--resolved"), ("info", "run", "--json"), ("average", "run")),
        *(("export", "run", "made"), ("train", "run"), ("analyze", "run", "blocks")),
        *(
            ("score", "in.txt", "--run", "run"),
            ("translate", "run", "--checkpoint", "best", "in.txt"),
        ),
    ),
    "exported": (("translate", "exported", "in.txt"), ("info", "exported")),
}


def try_directories(home: Path, draw: random.Random, tally: Tally) -> None:
    """Make hostile directories and give them to commands until the time is over."""
    usual = in_child(run(("translate", "run", "in.txt"), home / "trained"), home).memory
    while not tally.is_over():
        kind = draw.choice(("run", "run", "exported"))
        place = _copy(home, kind)
        harm = [_harm(place / kind, kind, draw) for _ in range(draw.choice((1, 1, 2)))]
        _reseal(place / kind, draw.random() < 0.5)
        words = draw.choice(COMMANDS[kind])
        opened = home / "opened"
        opened.unlink(missing_ok=True)
        ended = in_child(_watched(run(words, place), opened), home, at_most=SLOW)
        problem = ended.problem()
        if opened.is_file():
            problem = f"it opened {opened.read_text()}"
        elif any((place / name).read_text() != SECRET for name in SECRETS):
            problem = "the secret has changed"
        elif not problem and ended.memory > usual + MUCH:
            problem = f"it took {ended.memory} MB"
        tally.outcomes["refused" if ended.code else "worked"] += 1
        tally.add(" ".join(words), problem, "; ".join(harm))


def _copy(home: Path, kind: str) -> Path:
    place = home / "hostile"
    if place.exists():
        shutil.rmtree(place)
    place.mkdir()
    origin = home / {"run": "trained", "exported": "exported"}[kind]
    shutil.copytree(origin / kind, place / kind)
    shutil.copy(origin / "in.txt", place)
    for name in SECRETS:
        (place / name).write_text(SECRET)
    return place


def _reseal(folder: Path, with_sums: bool) -> None:
    """Remove the checksums, or make those of the hostile files."""
    for manifest in [path for path in folder.rglob(MANIFEST) if path.parent.is_relative_to(folder)]:
        names = list(json.loads(manifest.read_text())["files"])
        manifest.unlink()
        if with_sums and all((manifest.parent / name).is_file() for name in names):
            write_manifest(manifest.parent, names)


def _harm(folder: Path, kind: str, draw: random.Random) -> str:
    """Do one harmful thing to a directory; return what."""
    match draw.randint(0, 9):
        case 0:
            name, target = draw.choice(FILES[kind]), draw.choice(LINKS)
            _remove(folder / name)
            if (folder / name).parent.is_dir():
                (folder / name).symlink_to(target)
            return f"{name} is a link to {target}"
        case 1:
            name = draw.choice(FILES[kind])
            _remove(folder / name)
            if (folder / name).parent.is_dir():
                os.mkfifo(folder / name)
            return f"{name} is a pipe"
        case 2 | 3:
            name = draw.choice(
                [n for n in FILES[kind] if (folder / n).is_file()] or ["config.json"]
            )
            data = draw.choice((b"", b"\0" * 99, b"[" * 10**5, draw.randbytes(300), b"null", b"{}"))
            if (folder / name).is_file():
                (folder / name).write_bytes(data)
            return f"{name} is {data[:12]!r}"
        case _:
            name = draw.choice(DOCUMENTS[kind])
            return _edit(folder / name, draw) if (folder / name).is_file() else "nothing"


def _edit(path: Path, draw: random.Random) -> str:
    """Set a value of a document, at any depth, to a hostile one."""
    try:
        values = json.loads(path.read_text())
    except ValueError:
        return "nothing"
    here, key, names = values, None, list[str]()
    inside = values
    while isinstance(inside, dict) and inside:
        here, key = inside, draw.choice(list(inside))
        names.append(key)
        inside = here[key]
        if draw.random() < 0.1:
            break
    if key is None:
        return "nothing"
    value = draw.choice(VALUES)
    here[key] = value
    path.write_text(json.dumps(values))
    return f"{path.name}: {'.'.join(names)} = {str(value)[:30]!r}"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()


def _watched(act: Any, opened: Path) -> Any:
    """The act in a process that notes if it opens a secret."""

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.rename", "os.remove", "os.link"):
            for one in arguments[:2]:
                if isinstance(one, str) and os.path.basename(one) in (*SECRETS, "passwd", "mem"):
                    handle = os.open(opened, os.O_WRONLY | os.O_CREAT, 0o600)
                    os.write(handle, one.encode())
                    os.close(handle)

    def with_hook() -> None:
        sys.addaudithook(watch)
        act()

    return with_hook

"""Runs the code blocks of a page of documentation, in order, as a reader would."""

import io
import os
import random
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import as_toml

# What makes an example quick: a config that a page writes gets these settings.
SMALL: dict[str, dict[str, Any]] = {
    "data": {"vocab_size": 300},
    "model": {"d_model": 16, "ffn": 16, "heads": 2},
    "train": {
        "max_steps": 2,
        "save_every": 2,
        "warmup": 1,
        "batch_tokens": 600,
        "threads": 1,
        "tensorboard": False,
    },
    "decode": {"max_length": 8, "average": 1},
}
SETUP = ("make ", "pip install ")  # lines that make the environment in which the others run


@dataclass
class Reader:
    """A person at the terminal in a folder of their own, who does what a page says."""

    folder: Path
    hand: Path  # the files that `kutta data get` would download
    programs: Path = Path(sys.executable).parent  # where kutta is installed
    names: dict[str, Any] = field(default_factory=dict[str, Any])  # of Python, page by page
    output: list[str] = field(default_factory=list[str])  # one text for each block that ran

    def follow(self, page: str) -> None:
        """Run every shell and Python block, and save every config that names its file."""
        self.names = {"__name__": "page"}
        for language, text in blocks(page):
            if language == "toml" and (name := re.match(r"# (\S+\.toml)\n", text)):
                (self.folder / name[1]).write_text(small_config(text), encoding="utf-8")
            elif language == "sh":
                self.output.append(self.shell(text))
            elif language == "python":
                self.output.append(self.python(text))

    def shell(self, script: str) -> str:
        """Run a shell block but for its setup; every line has to succeed."""
        lines = [line for line in script.splitlines() if not line.startswith(SETUP)]
        environment = os.environ | {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }
        text = re.sub(r"(kutta data get \S+)", rf"\1 --from {self.hand}", "\n".join(lines))
        # No pipefail: `yes | head` is meant to end by a broken pipe.
        done = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (script, done.stderr)
        return done.stdout

    def python(self, text: str) -> str:
        """Run a Python block; names of earlier blocks of the page are known."""
        quick = re.sub(r'max_steps(=|": )\d+', r"max_steps\g<1>2", text)
        quick = re.sub(r'"(warmup|save_every)": \d+', r'"\1": 1', quick)
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(quick, "page", "exec"), self.names)
        finally:
            os.chdir(here)
        return out.getvalue()


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The code blocks of a page with their language, in order."""
    for block in re.finditer(r"^```(\w+)\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE):
        yield block[1], block[2]


def small_config(text: str) -> str:
    """A config with small sizes and few steps, in TOML."""
    values = tomllib.loads(text)
    for section, settings in SMALL.items():
        values[section] = values.get(section, {}) | settings
    return as_toml(values)


def write_downloads(folder: Path) -> None:
    """The archive of Tatoeba English-German, with invented sentences."""
    words, numbers = ["ba", "be", "bi", "bo", "bu", "da", "de"], random.Random(3)
    sentences = [numbers.choices(words, k=4) for _ in range(2_500)]
    rows = [f"{' '.join(one)}.\t{' '.join(reversed(one)).upper()}." for one in sentences]
    folder.mkdir()
    with zipfile.ZipFile(folder / "deu-eng.zip", "w") as packed:
        packed.writestr("deu.txt", "\n".join(rows) + "\n")

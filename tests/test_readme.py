"""The README and the pages of docs are true: commands and examples work, links lead somewhere."""

import gzip
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from kutta.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
# What makes an example quick, added to the commands and calls that train.
SMALL = [
    "train.max_steps=2",
    "train.save_every=2",
    "train.warmup=1",
    "train.threads=1",
    "train.tensorboard=false",
    "model.d_model=16",
    "model.ffn=16",
    "decode.average=1",
]


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def commands(page: str) -> list[str]:
    """The shell commands of a page, without their comments."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [line.split("  #")[0].split(" # ")[0].strip() for line in lines if line.strip()]


def test_the_commands_are_those_tested_here() -> None:
    """A new command in the README needs a test: this list makes one think of it."""
    assert commands(README) == [
        "make demo",
        "make test",
        "pip install -c constraints.txt .",
        "kutta train mine.toml",
        "kutta evaluate runs/mine",
        'echo "A dog runs." | kutta translate runs/mine',
    ]
    assert commands(RESULTS) == [
        "kutta train multi30k-rk2 --set data.dir=data/multi30k-bpe/en-de",
        "kutta evaluate runs/multi30k-rk2",
    ]


def test_training_on_ones_own_data_works_as_written(toy_run: Path, tmp_path: Path) -> None:
    text = tmp_path / "data" / "mine"
    text.mkdir(parents=True)
    for file in (toy_run.parent / "text").iterdir():
        language = {"xx": "en", "yy": "de"}[file.suffix[1:]]
        (text / f"{file.stem}.{language}").write_bytes(file.read_bytes())
    (tmp_path / "mine.toml").write_text(blocks(README, "toml")[0].replace("8000", "300"))
    run_commands(README, tmp_path)


def test_training_on_multi30k_works_as_written(shared_data: Path, tmp_path: Path) -> None:
    text = tmp_path / "data" / "multi30k-bpe" / "en-de"
    text.mkdir(parents=True)
    for file in (shared_data / "multi30k-bpe" / "en-de").glob("*.??.gz"):
        lines = gzip.decompress(file.read_bytes()).split(b"\n")[:40]
        (text / file.stem).write_bytes(b"\n".join(lines) + b"\n")
    run_commands(RESULTS, tmp_path)


def run_commands(page: str, folder: Path) -> None:
    """Run the page's commands of Kutta, made small, in `folder`."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    small = " ".join(f"--set {setting}" for setting in SMALL)
    for command in (line for line in commands(page) if "kutta" in line):
        full = f"{command} {small}" if "kutta train" in command else command
        done = subprocess.run(
            ["bash", "-c", full],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout


def test_the_python_examples_work_as_written(
    shared_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = blocks(README, "python")
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "data").symlink_to(shared_data)
    monkeypatch.chdir(tmp_path)
    small = ", ".join(f'"{setting}"' for setting in [*SMALL, "train.valid_bleu=false"])
    exec(first.replace('"train.max_steps=1000"', small), {})
    assert "['" in capsys.readouterr().out.splitlines()[-1]
    exec(second, {})
    assert capsys.readouterr().out.startswith("tensor([0.9048, 0.9048, 0.9048])")


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    # As code only, in backquotes or on a line of its own: prose may say "make" too.
    targets = re.findall(r"(?:`|^)make ([a-z]\w*)", README, flags=re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_readme_is_a_landing_page() -> None:
    assert len(README.splitlines()) <= 150


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert command.callback is not None
        assert f"| `kutta {command.callback.__name__}" in page


def test_lines_are_short() -> None:
    """Tables and code excepted."""
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for line in text.splitlines():
            table_or_code = line.lstrip().startswith("|") or line.startswith("    ")
            assert table_or_code or len(line) <= 100, f"{page.name}: {line}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f": {page.name}\n" in navigation, page.name


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_files_that_are_named_exist() -> None:
    name = re.compile(r"\b(?:benchmarks|configs|docs|experiments|src|tests)/[\w./-]+\.\w+")
    for page in PAGES:
        for file in name.findall(page.read_text(encoding="utf-8")):
            assert (ROOT / file).exists(), f"{page.name}: {file}"


def test_generated_parts_are_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    for path, text in script["generated"]().items():
        assert path.read_text(encoding="utf-8") == text, "run python docs/generate.py"

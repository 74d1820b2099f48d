"""The README and the pages of docs are true: commands and examples work, links lead somewhere."""

import ast
import gzip
import json
import re
import runpy
import shlex
import subprocess
import venv
from pathlib import Path

import pytest

from kutta.config import Config
from tests.pages import SETUP, SMALL, Reader, blocks, write_downloads

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OTHER_NAMES = {
    "tsv",
    "arrow",
    "en",
    "de",
    "log",
    "safetensors",
}  # of files: train.tsv is not a setting
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Someone who has followed the README in a fresh directory."""
    folder = tmp_path_factory.mktemp("reader")
    write_downloads(folder / "hand")
    reader = Reader(folder, folder / "hand")
    reader.follow(README)
    return reader


def test_everything_in_the_readme_runs(reader: Reader) -> None:
    make, box, get, commands, first, second = reader.output
    assert make == "", "the lines of make and pip: see the tests below"
    assert box == "Wo ist der Bahnhof?\n"
    assert "written to data/tatoeba-en-de" in get
    assert "sacreBLEU" in commands
    assert "['" in first.splitlines()[-1], "a list with one translation"
    assert second.startswith("tensor([0.9048, 0.9048, 0.9048])"), "exp(-0.1)"
    assert (reader.folder / "runs" / "mine" / "model.safetensors").is_file()


def test_the_blocks_of_the_readme_are_those_that_run() -> None:
    """A block in another language, or a config without a name, would not be run."""
    languages = [language for language, _ in blocks(README)]
    assert languages == ["sh", "sh", "sh", "toml", "sh", "python", "python", "bibtex"]
    lines = [line for kind, text in blocks(README) if kind == "sh" for line in text.splitlines()]
    setup = [line.split("  ")[0] for line in lines if line.startswith(SETUP)]
    assert setup == ["make demo", "make test", "pip install -c constraints.txt '.[train]'"]


@pytest.mark.slow
def test_the_readme_runs_after_its_own_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a new environment, outside the checkout; pip needs its package index."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    install = next(
        line for _, text in blocks(README) for line in text.splitlines() if "pip" in line
    )
    subprocess.run([programs / "python", "-m", *shlex.split(install)], cwd=ROOT, check=True)
    write_downloads(tmp_path / "hand")
    reader = Reader(tmp_path / "empty", tmp_path / "hand", programs)
    reader.folder.mkdir()
    presets = reader.shell("kutta info --list")
    assert "multi30k-rk2" in presets, "found by name, without a checkout"
    python = [text for language, text in blocks(README) if language == "python"]
    without = README
    for text in python:
        without = without.replace(f"```python\n{text}```", "")
    reader.follow(without)
    for number, text in enumerate(python):
        (reader.folder / f"{number}.py").write_text(text.replace("=1000", "=2"), encoding="utf-8")
        assert reader.shell(f"python {number}.py")


def test_the_quick_start_runs(tmp_path: Path) -> None:
    reader = Reader(tmp_path, tmp_path)
    reader.follow(page("quick-start.md"))
    first, _, python = reader.output
    assert (first, python) == ("Wo ist der Bahnhof?\n", "['Where is the station?']\n")
    new = (tmp_path / "page.de.html").read_text(encoding="utf-8")
    assert new == "<p>Wo ist <b>der Bahnhof</b>?</p>\n"


@pytest.mark.slow
def test_the_page_of_your_own_data_runs(reader: Reader) -> None:
    reader.follow(page("own-data.md"))
    assert "sacreBLEU" in reader.output[-1]
    assert (reader.folder / "runs" / "euler" / "model.safetensors").is_file()
    assert (reader.folder / "mine-int8").is_dir()


@pytest.mark.slow
def test_the_page_of_translating_runs(reader: Reader) -> None:
    before = len(reader.output)
    reader.follow(page("translating.md"))
    files, _, n_best, samples, _, ensemble, scores, again = reader.output[before:]
    assert len(files.splitlines()) == 1, "the others go to files"
    assert len((reader.folder / "first.de").read_text().splitlines()) == 3
    *lists, last = n_best.splitlines()
    assert len(lists) == 6
    assert all(re.fullmatch(r"-\d+\.\d{4}\t.*", line) for line in lists[:5])
    assert set(json.loads(last)) == {"source", "translations"}
    assert len(samples.splitlines()) == 5
    assert "runs/second" in ensemble
    assert "p = " in scores or "p-value" in scores or "p=" in scores
    score = re.findall(r"sacreBLEU\D*([\d.]+)", scores)[0]
    assert score in again, "score --run agrees with evaluate"


@pytest.mark.slow
def test_the_page_of_documents_runs(reader: Reader) -> None:
    reader.follow(page("documents.md"))
    assert reader.output[-1] == "['Dr. Smith came.', 'He left.', 'Yes.']\n"
    new = (reader.folder / "page.de.html").read_text(encoding="utf-8")
    assert "<b>" in new
    assert "<code>fast()</code>" in new
    assert "fuzzy" in (reader.folder / "messages.de.po").read_text(encoding="utf-8")


def test_the_page_of_python_runs(reader: Reader) -> None:
    before = len(reader.output)
    reader.follow(page("python.md"))
    text = "".join(reader.output[before:])
    assert "runs/rk4 rk4 " in text
    assert "did you mean train.max_steps?" in text
    assert "runs/api 2 finished" in text
    assert "tensor([0.9048, 0.9048, 0.9048])" in text, "exp(-0.1)"
    assert "tensor([0.9050, 0.9050, 0.9050])" in text, "1 - 0.1 + 0.005"
    assert "tensor([0.7360])" in text, "0.9, 1 - 0.18 = 0.82, 0.9 - 0.164 = 0.736"


def test_the_examples_of_the_theory_run(tmp_path: Path) -> None:
    reader = Reader(tmp_path, tmp_path)
    reader.follow(page("theory.md"))
    values = {name: float(value) for name, value in map(str.split, reader.output[0].splitlines())}
    assert values["euler"] == pytest.approx(0.75**4)
    assert values["rk2"] == pytest.approx((1 - 0.25 + 0.25**2 / 2) ** 4)
    assert values["rk4"] == pytest.approx(0.3678794, abs=1e-4)


def test_the_solver_of_the_tutorial_has_order_two(tmp_path: Path) -> None:
    reader = Reader(tmp_path, tmp_path)
    reader.follow(page("add-a-solver.md"))
    assert float(reader.output[-1]) == pytest.approx(4, abs=0.2)


def test_settings_that_are_named_exist() -> None:
    """`train.lr` in a page is a setting of the config."""
    fields = Config.model_fields
    sections = {name: fields[name].annotation for name in ("data", "model", "train", "decode")}
    for page in PAGES:
        for section, key in re.findall(
            r"`(data|model|train|decode)\.(\w+)(?: = [^`]*)?`", page.read_text(encoding="utf-8")
        ):
            known = getattr(sections[section], "model_fields", {})
            assert key in known or key in OTHER_NAMES, f"{page.name}: {section}.{key}"


def test_training_on_multi30k_works_as_written(shared_data: Path, tmp_path: Path) -> None:
    """The commands of Results, with a few lines of the text that the first of them makes."""
    commands = next(text for kind, text in blocks(page("results.md")) if kind == "sh")
    assert commands == (
        "kutta data get multi30k-bpe\nkutta train multi30k-rk2\nkutta evaluate runs/multi30k-rk2\n"
    )
    text = tmp_path / "data" / "multi30k-bpe" / "en-de"
    text.mkdir(parents=True)
    for file in (shared_data / "multi30k-bpe" / "en-de").glob("*.??.gz"):
        lines = gzip.decompress(file.read_bytes()).split(b"\n")[:40]
        (text / file.stem).write_bytes(b"\n".join(lines) + b"\n")
    train, evaluate = commands.splitlines()[1:]
    small = {**SMALL["train"], "batch_tokens": 600}
    settings = " ".join(f"--set train.{key}={str(one).lower()}" for key, one in small.items())
    settings += " --set model.d_model=16 --set model.ffn=16"
    assert "BLEU" in Reader(tmp_path, tmp_path).shell(f"{train} {settings}\n{evaluate}")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    # As code only, in backquotes or on a line of its own: prose may say "make" too.
    targets = re.findall(r"(?:`|^)make ([a-z]\w*)", README, flags=re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_readme_is_a_landing_page() -> None:
    assert len(README.splitlines()) <= 150


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
    name = re.compile(r"\b(?:benchmarks|configs|docs|experiments|src|tests|tools)/[\w./-]+\.\w+")
    for page in PAGES:
        for file in name.findall(page.read_text(encoding="utf-8")):
            assert (ROOT / file).exists(), f"{page.name}: {file}"


def test_generated_parts_are_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    for path, text in script["generated"]().items():
        assert path.read_text(encoding="utf-8") == text, "run python docs/generate.py"


def test_the_messages_of_troubleshooting_are_those_of_the_code() -> None:
    """`...` in a quoted message stands for what the code fills in."""
    known = [text for file in (ROOT / "src").rglob("*.py") for text in messages(file)]
    rows = [line for line in page("troubleshooting.md").splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    for row in rows:
        quoted = row.split("`")[1]
        parts = [re.escape(part) for part in quoted.split("...")]
        pattern = re.compile(r"(.|\n)*?".join(parts))
        assert any(pattern.search(text) for text in known), quoted


def messages(file: Path) -> list[str]:
    """The texts in a file: neighbouring literals joined, "..." for what is filled in."""

    def written(node: ast.expr) -> str:
        if isinstance(node, ast.BinOp):
            return written(node.left) + written(node.right)
        if isinstance(node, ast.JoinedStr):
            return "".join(map(written, node.values))
        constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
        return node.value if constant else "..."

    kinds = ast.Constant | ast.JoinedStr | ast.BinOp
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [written(node) for node in nodes if isinstance(node, kinds)]

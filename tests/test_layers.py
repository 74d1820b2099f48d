"""The layers of the package: which packages may import which, and how long files may be.

Imports are read with ast, including those inside functions and under TYPE_CHECKING.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "kutta"

# The packages (folders or modules) of src/kutta. A package imports its own layer and the layers
# before it, never a later one.
LAYERS = (
    ("errors", "limits", "parsing", "files", "integrity", "box", "contained", "config", "ode"),
    ("model", "data"),
    ("runs", "metrics", "runtime"),
    ("training", "translate"),
    (
        "corpora",
        "plotting",
        "analysis",
        "reproduce",
        "documents",
        "server",
        "commands",
        "demo",
        "export",
        "cli",
    ),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
INDEPENDENT = {("model", "data"), ("data", "model")}  # neither imports the other
ENTRY_POINTS = {"__init__", "__main__"}  # the public interface: they may import every package
OPEN_TO_ALL = {"__version__"}  # the only name that packages may import from `kutta` itself

MAX_FILE_LINES = 300
# Of all packages below the last layer, without the features in the CHANGELOG's table.
MAX_CORE_LINES = 8_000

RUN_FILES = {
    *("config.json", "model.safetensors", "optimizer.safetensors", "state.json"),
    *("metrics.jsonl", "train.log", "train.arrow", "valid.arrow"),
}

Graph = dict[str, set[str]]


def python_files(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


def package_of(file: Path, package: Path) -> str:
    return file.relative_to(package).with_suffix("").parts[0]


def imported_names(file: Path, package: Path) -> set[str]:
    """Full dotted names that `file` imports, relative imports resolved: kutta.ode.solver.step."""
    here = (package.name, *file.relative_to(package).with_suffix("").parts)
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), filename=str(file))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = ".".join(here[: len(here) - node.level]) if node.level else ""
            base = ".".join(part for part in (start, node.module) if part)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def imported_packages(file: Path, package: Path) -> set[str]:
    """The packages that `file` imports; `__init__` stands for `kutta` itself."""
    packages: set[str] = set()
    for name in imported_names(file, package):
        top, _, rest = name.partition(".")
        if top != package.name:
            continue
        first = rest.split(".")[0]
        is_package = (package / first).is_dir() or (package / f"{first}.py").is_file()
        if first not in OPEN_TO_ALL:
            packages.add(first if first and is_package else "__init__")
    return packages


def import_graph(package: Path) -> Graph:
    """Each package with the other packages it imports, without the entry points."""
    graph: Graph = {}
    for file in python_files(package):
        name = package_of(file, package)
        if name not in ENTRY_POINTS:
            graph.setdefault(name, set()).update(imported_packages(file, package) - {name})
    return graph


def packages_without_layer(graph: Graph) -> list[str]:
    return sorted(set(graph) - set(LAYER))


def forbidden_imports(graph: Graph) -> list[str]:
    """Imports of a later layer, an entry point or an independent package, as `one -> other`."""
    return sorted(
        f"{name} -> {other}"
        for name, others in graph.items()
        for other in others
        if LAYER.get(other, len(LAYERS)) > LAYER.get(name, len(LAYERS))
        or other in ENTRY_POINTS
        or (name, other) in INDEPENDENT
    )


def cycle(graph: Graph) -> list[str]:
    """The packages of one import cycle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def count_lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def test_every_package_has_a_layer() -> None:
    assert packages_without_layer(import_graph(PACKAGE)) == [], "add the new package to LAYERS"


def test_no_package_imports_a_later_layer() -> None:
    assert forbidden_imports(import_graph(PACKAGE)) == []


def test_there_are_no_import_cycles() -> None:
    assert cycle(import_graph(PACKAGE)) == []


def test_ode_is_independent() -> None:
    """It is numerical analysis and imports nothing but the exception for wrong input."""
    assert import_graph(PACKAGE).get("ode", set()) <= {"errors"}


def test_training_uses_nothing_of_translate_but_the_translator() -> None:
    names = {
        name
        for file in python_files(PACKAGE / "training")
        for name in imported_names(file, PACKAGE)
    }
    found = {name for name in names if name.startswith("kutta.translate")}
    assert found == {"kutta.translate.translator.Translator"}


def test_the_file_names_of_a_run_are_written_in_runs_only() -> None:
    """Elsewhere they are attributes of Run. A config knows the name under which it is saved."""
    places = {
        (constant.value, package_of(file, PACKAGE))
        for file in python_files(PACKAGE)
        for constant in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(constant, ast.Constant) and constant.value in RUN_FILES
    }
    assert {name for name, _ in places} == RUN_FILES
    assert {place for place in places if place[1] != "runs"} == {("config.json", "config")}


def test_nothing_is_called_utils() -> None:
    names = {part for file in python_files(PACKAGE) for part in file.relative_to(PACKAGE).parts}
    assert not {name for name in names if name.removesuffix(".py").strip("_") in {"util", "utils"}}


def test_every_file_is_short() -> None:
    lengths = {str(file.relative_to(PACKAGE)): count_lines(file) for file in python_files(PACKAGE)}
    assert {file: n for file, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_the_core_is_small() -> None:
    core = {name for names in LAYERS[:-1] for name in names}
    files = [file for file in python_files(PACKAGE) if package_of(file, PACKAGE) in core]
    assert sum(count_lines(file) for file in files) - feature_lines() <= MAX_CORE_LINES


def feature_lines() -> int:
    """The lines of the features that the CHANGELOG lists with what they add to the core."""
    changes = (PACKAGE.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    table = changes.partition("| feature | lines in the core |\n|---|---:|\n")[2]
    rows = table.partition("\n\n")[0].splitlines()
    assert rows, "the table of features is in the CHANGELOG"
    return sum(int(row.split("|")[-2].replace(",", "")) for row in rows)


# The import checks above pass on a clean package; these show that they can fail.


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("ode/solver.py", "from kutta.model.field import F", "ode -> model"),
        ("model/field.py", "import kutta.data.batches", "model -> data"),
        ("data/batches.py", "from ..model import field", "data -> model"),
        ("data/__init__.py", "from .. import model", "data -> model"),
        ("translate/search.py", "from kutta.cli import main", "translate -> cli"),
        ("training/loop.py", "def fit():\n    from kutta import cli", "training -> cli"),
        ("training/loop.py", "from kutta import Config", "training -> __init__"),
        ("training/loop.py", "import kutta", "training -> __init__"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, file: str, line: str, complaint: str) -> None:
    package = build(tmp_path, {file: line})
    assert forbidden_imports(import_graph(package)) == [complaint]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("model/field.py", "import torch.nn\nfrom kutta.ode import solver\nfrom kutta import ode"),
        (
            "model/field.py",
            "from . import attention\nfrom .a import A\nfrom ..ode import B",
        ),
        ("training/loop.py", "from kutta import __version__\nfrom kutta.metrics import bleu"),
        ("__init__.py", "from kutta.cli import main\n__version__ = '0'"),
        ("__main__.py", "from kutta.cli import main"),
    ],
)
def test_an_allowed_import_is_not_complained_about(tmp_path: Path, file: str, line: str) -> None:
    graph = import_graph(build(tmp_path, {file: line}))
    assert forbidden_imports(graph) == []
    assert cycle(graph) == []
    assert packages_without_layer(graph) == []


def test_a_cycle_and_a_package_without_layer_are_found(tmp_path: Path) -> None:
    files = {"training/loop.py": "import kutta.data", "data/store.py": "import kutta.training"}
    graph = import_graph(build(tmp_path, {**files, "extra/module.py": ""}))
    assert set(cycle(graph)) == {"training", "data"}
    assert packages_without_layer(graph) == ["extra"]


def build(folder: Path, files: dict[str, str]) -> Path:
    """A package named kutta with a subpackage for every name in LAYER, and `files` in it."""
    package = folder / "kutta"
    empty = {f"{name}/__init__.py": "" for name in LAYER if f"{name}.py" not in files}
    for name, text in {**empty, **files}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package

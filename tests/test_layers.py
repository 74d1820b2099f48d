"""The plan of the house: who may import whom, and how big a file may grow.

The imports are read with ast, those inside functions and under TYPE_CHECKING too.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "kutta"

# A room is a module or a folder of src/kutta. A room imports its own layer and the layers before
# it, never a later one.
LAYERS = (
    ("errors", "files", "config", "ode"),
    ("model", "data"),
    ("runs", "metrics"),
    ("training", "translate"),
    ("corpora", "plotting", "analysis", "reproduce", "server", "commands", "demo", "cli"),
)
LAYER = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
STRANGERS = {("model", "data"), ("data", "model")}  # they meet at a Batch only
FRONT_DOORS = {"__init__", "__main__"}  # these show the house to users, so they see every room
OPEN_TO_ALL = {"__version__"}  # the only name a room may take from the front door

MAX_FILE_LINES = 300
MAX_CORE_LINES = 9_900  # of all rooms below the last layer

Rooms = dict[str, set[str]]


def python_files(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


def room_of(file: Path, package: Path) -> str:
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


def imported_rooms(file: Path, package: Path) -> set[str]:
    """The rooms that `file` imports; `__init__` stands for the package itself."""
    rooms: set[str] = set()
    for name in imported_names(file, package):
        top, _, rest = name.partition(".")
        if top != package.name:
            continue
        first = rest.split(".")[0]
        is_room = (package / first).is_dir() or (package / f"{first}.py").is_file()
        if first not in OPEN_TO_ALL:
            rooms.add(first if first and is_room else "__init__")
    return rooms


def rooms_and_imports(package: Path) -> Rooms:
    """Each room with the other rooms it imports, front doors left out."""
    graph: Rooms = {}
    for file in python_files(package):
        room = room_of(file, package)
        if room not in FRONT_DOORS:
            graph.setdefault(room, set()).update(imported_rooms(file, package) - {room})
    return graph


def unplanned_rooms(graph: Rooms) -> list[str]:
    return sorted(set(graph) - set(LAYER))


def forbidden_imports(graph: Rooms) -> list[str]:
    """Imports that go up, in at the front door, or between strangers, as `room -> room`."""
    return sorted(
        f"{room} -> {other}"
        for room, others in graph.items()
        for other in others
        if LAYER.get(other, len(LAYERS)) > LAYER.get(room, len(LAYERS))
        or other in FRONT_DOORS
        or (room, other) in STRANGERS
    )


def cycle(graph: Rooms) -> list[str]:
    """The rooms of one import cycle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def count_lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def test_every_room_is_on_the_plan() -> None:
    assert unplanned_rooms(rooms_and_imports(PACKAGE)) == [], (
        "give the new room its layer in LAYERS"
    )


def test_no_room_imports_a_higher_layer_or_a_stranger() -> None:
    assert forbidden_imports(rooms_and_imports(PACKAGE)) == []


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    assert cycle(rooms_and_imports(PACKAGE)) == []


def test_ode_knows_nothing_of_the_rest() -> None:
    """It is numerical analysis: it may complain about wrong input, and that is all."""
    assert rooms_and_imports(PACKAGE).get("ode", set()) <= {"errors"}


def test_nothing_is_called_utils() -> None:
    names = {part for file in python_files(PACKAGE) for part in file.relative_to(PACKAGE).parts}
    assert not {name for name in names if name.removesuffix(".py").strip("_") in {"util", "utils"}}


def test_every_file_is_short() -> None:
    lengths = {str(file.relative_to(PACKAGE)): count_lines(file) for file in python_files(PACKAGE)}
    assert {file: n for file, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_the_core_is_small() -> None:
    core = {room for rooms in LAYERS[:-1] for room in rooms}
    files = [file for file in python_files(PACKAGE) if room_of(file, PACKAGE) in core]
    assert sum(count_lines(file) for file in files) < MAX_CORE_LINES


# The import checks above pass on a clean house; these show that they can fail.


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
    assert forbidden_imports(rooms_and_imports(package)) == [complaint]


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
    graph = rooms_and_imports(build(tmp_path, {file: line}))
    assert forbidden_imports(graph) == []
    assert cycle(graph) == []
    assert unplanned_rooms(graph) == []


def test_a_circle_and_an_unplanned_room_are_found(tmp_path: Path) -> None:
    circle = {"training/loop.py": "import kutta.data", "data/store.py": "import kutta.training"}
    graph = rooms_and_imports(build(tmp_path, {**circle, "cellar/wine.py": ""}))
    assert set(cycle(graph)) == {"training", "data"}
    assert unplanned_rooms(graph) == ["cellar"]


def build(folder: Path, files: dict[str, str]) -> Path:
    """A small house named kutta with every planned room, and `files` in it."""
    package = folder / "kutta"
    empty = {f"{room}/__init__.py": "" for room in LAYER if f"{room}.py" not in files}
    for name, text in {**empty, **files}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package

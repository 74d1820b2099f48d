"""The picture of the imports in docs/architecture.md is that of the code."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPT = runpy.run_path(str(ROOT / "docs" / "import_graph.py"))


def test_the_picture_is_up_to_date() -> None:
    assert SCRIPT["PICTURE"].read_text(encoding="utf-8") == SCRIPT["picture"](), (
        "run python docs/import_graph.py"
    )


def test_every_package_has_a_box() -> None:
    package = ROOT / "src" / "kutta"
    folders = [path.parent.name for path in package.glob("*/__init__.py")]
    modules = [path.stem for path in package.glob("[a-z]*.py")]
    drawn = SCRIPT["picture"]()
    for name in [*folders, *modules]:
        assert f">{name}</text>" in drawn


def test_imports_of_every_form_are_read(tmp_path: Path) -> None:
    files = {
        "kutta/__init__.py": "from kutta.cli import main",
        "kutta/errors.py": "import json",
        "kutta/files.py": "from kutta.errors import InputError",
        "kutta/model/__init__.py": "from . import stack\nfrom .. import files",
        "kutta/model/stack.py": "def f():\n    import kutta.errors",
        "kutta/cli/app.py": "from kutta import __version__\nfrom ..model.stack import f",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert SCRIPT["read_imports"](tmp_path / "kutta") == {
        "errors": set(),
        "files": {"errors"},
        "model": {"errors", "files"},
        "cli": {"model"},
    }


def test_an_import_is_left_out_where_a_longer_path_leads_there() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert SCRIPT["without_shortcuts"](graph) == {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}

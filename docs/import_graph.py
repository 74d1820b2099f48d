"""Draw which packages of Kutta import which, from the code: docs/figures/imports.svg.

python docs/import_graph.py

An import is left out of the picture where a longer path of imports leads to the same package. All
imports are in a comment of the file. The bands are the layers of tests/test_layers.py.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = Path(__file__).parent / "figures" / "imports.svg"

Graph = dict[str, set[str]]

# Where packages stand from left to right, in pixels; their height follows from the imports.
CENTRES = {
    "cli": 380,
    "reproduce": 380,
    "demo": 320,
    "analysis": 320,
    "corpora": 80,
    "plotting": 180,
    "commands": 470,
    "training": 400,
    "translate": 400,
    "runs": 350,
    "metrics": 540,
    "data": 290,
    "model": 410,
    "config": 232,
    "box": 470,
    "files": 180,
    "ode": 350,
    "errors": 350,
}
WIDTH, RIGHT = 720, 600  # of the picture; where a package stands that has no place yet
BOX_WIDTH, BOX_HEIGHT, ROW, BAND_GAP, MARGIN = 92, 28, 54, 14, 20

STYLE = """
.band { fill: #f6f7fb; }
.box { fill: #4f46e5; }
.name { fill: white; font-size: 13px; text-anchor: middle; }
.note { fill: #6b7280; font-size: 12px; text-anchor: end; }
.import { fill: none; stroke: #64748b; stroke-width: 1.4; marker-end: url(#head); }
text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
"""
HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#64748b"/></marker></defs>'
)


def read_imports(package: Path) -> Graph:
    """Each package or module inside `package` with the others it imports."""
    members = {path.stem for path in package.iterdir() if path.is_dir() or path.suffix == ".py"}
    members = {name for name in members if not name.startswith("_")}
    graph: Graph = {name: set() for name in members}
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package).with_suffix("").parts
        if place[0] in members:
            names = imported_names(file, (package.name, *place))
            parts = [name.split(".") for name in names]
            used = {part[1] for part in parts if part[0] == package.name and len(part) > 1}
            graph[place[0]] |= (used & members) - {place[0]}
    return graph


def imported_names(file: Path, place: tuple[str, ...]) -> set[str]:
    """The dotted names that a module imports; `place` is its own, for relative imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = place[: len(place) - node.level] if node.level else ()
            base = (*start, *([node.module] if node.module else []))
            names |= {".".join((*base, alias.name)) for alias in node.names}
    return names


def without_shortcuts(graph: Graph) -> Graph:
    """The same graph without imports to which a longer path leads (its transitive reduction)."""
    reached: Graph = {}
    for name in TopologicalSorter(graph).static_order():
        reached[name] = set(graph[name]).union(*(reached[other] for other in graph[name]))
    return {
        name: {other for other in others if not any(other in reached[o] for o in others - {other})}
        for name, others in graph.items()
    }


def read_layers() -> list[set[str]]:
    """LAYERS of tests/test_layers.py, lowest first."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    ]
    return [set(layer) for layer in ast.literal_eval(values[0])]


def rows_of(layer: set[str], graph: Graph) -> dict[str, int]:
    """The row of each package within its layer: above all that it imports there."""
    rows: dict[str, int] = {}
    inside = {name: graph[name] & layer for name in sorted(layer & set(graph))}
    for name in TopologicalSorter(inside).static_order():
        rows[name] = 1 + max((rows[other] for other in inside[name]), default=-1)
    return rows


def draw(graph: Graph, layers: list[set[str]]) -> str:
    """The picture: one band for each layer, the highest on top, and arrows that point down."""
    bands: list[str] = []
    centres: dict[str, tuple[float, float]] = {}
    top = MARGIN
    for number in reversed(range(len(layers))):
        rows = rows_of(layers[number], graph)
        count = 1 + max(rows.values())
        height = count * ROW
        bands.append(
            f'<rect class="band" x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" '
            f'height="{height}" rx="10"/>'
            f'<text class="note" x="{WIDTH - MARGIN - 12}" y="{top + 20}">layer {number}</text>'
        )
        for name, row in rows.items():
            centres[name] = CENTRES.get(name, RIGHT), top + (count - row - 0.5) * ROW
        top += height + BAND_GAP
    height = top - BAND_GAP + MARGIN
    arrows = [
        arrow(centres[name], centres[other])
        for name, others in sorted(without_shortcuts(graph).items())
        for other in sorted(others)
    ]
    boxes = [box(name, *centre) for name, centre in sorted(centres.items())]
    imports = [f"{name}: {' '.join(sorted(others))}" for name, others in sorted(graph.items())]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}">',
            "<!-- written by docs/import_graph.py; all imports:",
            *imports,
            "-->",
            f"<style>{STYLE}</style>",
            HEAD,
            f'<rect width="{WIDTH}" height="{height}" rx="14" fill="white"/>',
            *bands,
            *arrows,
            *boxes,
            "</svg>\n",
        ]
    )


def box(name: str, x: float, y: float) -> str:
    left, top = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
    return (
        f'<rect class="box" x="{left:g}" y="{top:g}" width="{BOX_WIDTH}" '
        f'height="{BOX_HEIGHT}" rx="7"/><text class="name" x="{x:g}" y="{y + 4.5:g}">{name}</text>'
    )


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Straight down from where it starts, then across, in the gap above the row of its end."""
    (x0, y0), (x1, y1) = start, end
    y0, y1 = y0 + BOX_HEIGHT / 2, y1 - BOX_HEIGHT / 2 - 1
    turn = max(y0, y1 - (ROW - BOX_HEIGHT))
    middle = (turn + y1) / 2
    curve = f"C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}"
    return f'<path class="import" d="M{x0:g} {y0:g} V{turn:g} {curve}"/>'


def picture() -> str:
    """The picture of the code as it is."""
    return draw(read_imports(ROOT / "src" / "kutta"), read_layers())


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")

"""Exported models that somebody made to do harm, with checksums that match."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from kutta.errors import InputError
from kutta.export.export import export_run
from kutta.integrity import MANIFEST, write_manifest
from kutta.runs import Run
from kutta.runtime.asked import asked_by
from kutta.runtime.kernels import obstacle
from kutta.runtime.program import PROGRAM
from kutta.translate import Translator
from tests.test_cli import is_one_sentence, kutta


@pytest.fixture(scope="module")
def good(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile exports") / "exported"
    export_run(Run.load(toy_run), folder)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "exported")
    return tmp_path / "exported"


def seal(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    write_manifest(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"heads": 60_000},
        {"width": 65_536},
        {"caches": 10_000},
        {"memories": 0},
        {"heads": True},
        {"heads": "2"},
        {"width": -1},
        {"width": 10**18},
        {"vocabulary": 299},
        {"version": "x" * 5000},
        {"more": 1},
    ],
    ids=lambda change: str(change)[:30],
)
def test_sizes_that_the_graphs_do_not_have_are_refused(
    folder: Path, change: dict[str, Any]
) -> None:
    path = folder / "export.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    seal(folder)
    is_one_sentence(kutta("translate", folder, stdin=b"ba be\n"))


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"null", b"\xff", b"9" * 5000])
def test_a_description_that_is_something_else_is_refused(folder: Path, content: bytes) -> None:
    (folder / "export.json").write_bytes(content)
    is_one_sentence(kutta("translate", folder, stdin=b"ba be\n"), "export.json")


@pytest.mark.parametrize("name", ["encoder.onnx", "tokenizer.model", "config.json"])
def test_a_link_that_leads_out_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_bytes((folder / name).read_bytes())
    (folder / name).unlink()
    (folder / name).symlink_to("../secret")
    is_one_sentence(kutta("translate", folder, stdin=b"ba be\n"), "is a link to")


def test_graphs_of_another_model_are_refused(folder: Path) -> None:
    shutil.copy(folder / "encoder.onnx", folder / "decoder.onnx")
    (folder / PROGRAM).unlink()
    seal(folder)
    is_one_sentence(kutta("translate", folder, stdin=b"ba be\n"), "decoder.onnx")


def test_messages_in_messages_have_a_limit(tmp_path: Path) -> None:
    """Subgraphs of subgraphs: model > graph > node > attribute > graph > ..."""

    def inside(number: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while True:
            length += bytes([size & 127 | (128 if size > 127 else 0)])
            size >>= 7
            if not size:
                return bytes([number << 3 | 2]) + length + content

    message = b""
    for _ in range(500):
        message = inside(1, inside(5, inside(6, message)))
    (tmp_path / "deep.onnx").write_bytes(inside(7, message))
    with pytest.raises(InputError, match="messages in each other"):
        asked_by(tmp_path / "deep.onnx")


def test_a_graph_that_asks_for_all_memory_is_refused(folder: Path) -> None:
    """A terabyte of ones in 200 bytes, of operators that exports have, before the first output."""
    graph = onnx.load(folder / "encoder.onnx")
    size = numpy_helper.from_array(np.array([1 << 38]), "bomb_size")
    one = numpy_helper.from_array(np.ones(1, np.float32), "bomb_one")
    zero = numpy_helper.from_array(np.zeros(1, np.float32), "bomb_zero")
    graph.graph.initializer.extend([size, one, zero])
    last = graph.graph.node[-1]
    wanted, last.output[0] = last.output[0], "harmless"
    bomb = [
        helper.make_node("Expand", ["bomb_one", "bomb_size"], ["bomb"]),
        helper.make_node("ReduceMax", ["bomb"], ["largest"], axes=[0], keepdims=1),
        helper.make_node("Mul", ["largest", "bomb_zero"], ["nothing"]),
        helper.make_node("Add", ["harmless", "nothing"], [wanted]),
    ]
    graph.graph.node.extend(bomb)
    onnx.save(graph, folder / "encoder.onnx")
    (folder / PROGRAM).unlink()
    seal(folder)
    done = kutta("translate", folder, stdin=b"ba be\n")
    is_one_sentence(done, "encoder.onnx")


def first(program: Any, do: str) -> Any:
    return next(one for one in program["decoder"]["operations"] if one["do"] == do)


@pytest.mark.skipif(bool(obstacle()), reason=obstacle())
@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.clear(),
        lambda p: p.pop("encoder"),
        lambda p: p["decoder"].update(operations=[]),
        lambda p: p["decoder"].update(operations={"do": "norm"}),
        lambda p: p["decoder"].update(registers=[16] * 100_000),
        lambda p: p["decoder"].update(registers=[10**12]),
        lambda p: p["decoder"].update(registers=p["decoder"]["registers"][:-1]),
        lambda p: p["decoder"]["operations"].pop(),
        lambda p: p["decoder"]["operations"].append(first(p, "best")),
        lambda p: first(p, "norm").update(do="nothing"),
        lambda p: first(p, "norm").update(do=["norm"]),
        lambda p: first(p, "norm").update(more=1),
        lambda p: first(p, "norm").update(number=float("inf")),
        lambda p: first(p, "norm").pop("vector"),
        lambda p: first(p, "norm").update({"from": [-1]}),
        lambda p: first(p, "norm").update({"from": []}),
        lambda p: first(p, "norm").update(to=99),
        lambda p: first(p, "norm").update(to=True),
        lambda p: first(p, "product").update(matrix="target_embedding.tokens.weight"),
        lambda p: first(p, "product").update(matrix="nobody"),
        lambda p: first(p, "product").pop("matrix"),
        lambda p: first(p, "product").update(how="behind norm", number=0),
        lambda p: first(p, "product").update(how="behind relu"),  # and the weights are in fp32
        lambda p: first(p, "product").update(vector=first(p, "product")["matrix"]),
        lambda p: first(p, "embed").update(matrix=first(p, "product")["matrix"]),
        lambda p: first(p, "attend_slots").update(index=7),
        lambda p: first(p, "attend_slots").update(index=-1),
        lambda p: first(p, "attend_slots").update(do="attend_source"),
        lambda p: first(p, "attend_memory").update(index=2),
        lambda p: first(p, "add").update({"from": [0, 1, 2]}),
    ],
)
def test_programs_of_another_model_are_refused(folder: Path, change: Any) -> None:
    program = json.loads((folder / PROGRAM).read_text())
    change(program)
    (folder / PROGRAM).write_text(json.dumps(program))
    seal(folder)
    with pytest.raises(InputError, match=PROGRAM) as caught:
        Translator.load(folder).translate(["ba be"])
    assert "\n" not in str(caught.value)


def test_graphs_share_a_bound_on_memory(good: Path) -> None:
    """Without the bound a graph that asks for 2 GB gets them; with it, it is refused."""
    script = """
import resource, sys
from pathlib import Path
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from kutta.errors import InputError
from kutta.runtime import session

session.available_memory = lambda: int(sys.argv[2])
size = numpy_helper.from_array(np.array([1 << 29]), "size")
nodes = [
    helper.make_node("Expand", ["x", "size"], ["wide"]),
    helper.make_node("ReduceMax", ["wide"], ["y"], axes=[0]),
]
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
graph = helper.make_graph(nodes, "wide", [x], [y], [size])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
path = Path(sys.argv[1])
onnx.save(model, path)
try:
    session.Session(path).run({"x": np.ones(1, np.float32)}, ["y"])
    print("computed", end=" ")
except InputError:
    print("refused", end=" ")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 1 << 20)
"""
    for memory, expected in ((1 << 30, "refused False"), (0, "computed True")):
        command = [sys.executable, "-c", script, good.parent / "wide.onnx", str(memory)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected

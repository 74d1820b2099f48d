"""Requests a second, their times and the memory of `kutta serve`, measured with wrk on loopback.

`kutta serve` serves the run in PyTorch, and its exports in fp32 and int8 without it. Beside it are
CTranslate2 with the same weights behind the same server, in fp32 and int8, and LibreTranslate with
them on its CTranslate2 backend. `--help` says what can be chosen.
"""

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from environments import DEFAULT, Absent, Steps, clean, last_line, python_of
from rich.console import Console
from rich.table import Table
from trainee import memory_mb

from kutta.demo.demo import demo_config
from kutta.demo.grammar import write_corpus
from kutta.errors import InputError
from kutta.export.ctranslate2 import export_ctranslate2
from kutta.export.export import export_run
from kutta.runs import Run
from kutta.training.run import train

CLIENTS = (1, 8, 64)
SERVERS = (
    "kutta int8",
    "kutta fp32",
    "kutta PyTorch",
    "CTranslate2 int8",
    "CTranslate2 fp32",
    "LibreTranslate",
)
WATCHED = SERVERS[0]  # whose memory must not grow
LIBRETRANSLATE: Steps = (("libretranslate==1.9.6",),)
INSIDE = Path(__file__).parent / "inside"
PATIENCE = 120.0  # seconds for a server to start
# wrk sends the bodies in turn; what it has measured comes out as one JSON object.
SCRIPT = """
local bodies, n = {}, 0
for line in io.lines("BODIES") do bodies[#bodies + 1] = line end
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
request = function()
  n = n % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[n])
end
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format('RESULT {"requests": %d, "seconds": %f, "p50": %f, "p99": %f, '
    .. '"refused": %d, "broken": %d}\\n', summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
"""


class Load:
    """wrk with the sentences of a text."""

    def __init__(self, lines: Sequence[str], source: str, target: str, folder: Path) -> None:
        bodies = [json.dumps({"q": line, "source": source, "target": target}) for line in lines]
        (folder / "bodies").write_text("\n".join(bodies) + "\n", encoding="utf-8")
        self.script = folder / "load.lua"
        self.script.write_text(SCRIPT.replace("BODIES", str(folder / "bodies")))

    def run(self, url: str, clients: int, seconds: int) -> dict[str, Any]:
        """What wrk measured; times in milliseconds."""
        options = ["-t", "1", "-c", str(clients), "-d", f"{seconds}s", "--timeout", "60s"]
        command = ["wrk", *options, "-s", str(self.script), f"{url}/translate"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return json.loads(said.partition("RESULT ")[2])


@contextmanager
def serving(command: list[str], folder: Path) -> Iterator[tuple[str, int]]:
    """The address and the process of a server, which is stopped afterwards.

    The server writes its address. It runs with `folder` as its home.
    """
    places = {"HOME": str(folder)} | {f"XDG_{x}_HOME": "" for x in ("DATA", "CONFIG", "CACHE")}
    env = {name: value for name, value in clean(**places).items() if value}
    log = folder / "server.log"
    with (
        open(log, "w", encoding="utf-8") as out,
        subprocess.Popen(command, stdout=out, stderr=out, env=env) as process,
    ):
        try:
            yield address(process, log), process.pid
        finally:
            process.terminate()
            process.wait(60)


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where a server listens, as soon as it answers."""
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.2)
        if found := re.search(r"http://127[\d.:]+", log.read_text(encoding="utf-8")):
            with suppress(OSError), urlopen(f"{found[0]}/languages", timeout=10):
                return found[0]
    raise Absent(f"it did not start: {last_line(log.read_text(encoding='utf-8'))}")


def libretranslate(run: Run, export: Path, home: Path, envs: Path, install: bool) -> list[str]:
    """The command of LibreTranslate, with the exported model as a package of its own format.

    It downloads packages if it finds fewer than two, so there is another one that is not used.
    """
    python = python_of("LibreTranslate", LIBRETRANSLATE, envs, install)
    data = run.config.data
    for source, target in ((data.source, data.target), (data.target, data.source)):
        package = home / ".local/share/argos-translate/packages" / f"{source}_{target}"
        shutil.copytree(export, package / "model")
        shutil.copyfile(export / "tokenizer.model", package / "sentencepiece.model")
        facts = {"package_version": "1.0", "argos_version": "1.9"}
        names = {"from_code": source, "from_name": source, "to_code": target, "to_name": target}
        (package / "metadata.json").write_text(json.dumps(facts | names), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = INSIDE / "serve_libretranslate.py"
    return [str(python), str(script), str(port), f"{data.source},{data.target}"]


def measure(url: str, pid: int, load: Load, seconds: int) -> list[dict[str, Any]]:
    """A row for each number of clients."""
    load.run(url, 1, 2)  # the first requests do not count
    return [
        {"clients": clients, **load.run(url, clients, seconds), "mb": memory_mb(pid, "VmRSS")}
        for clients in CLIENTS
    ]


def growth(url: str, pid: int, load: Load, requests: int) -> dict[str, Any]:
    """The memory after a tenth of the requests, and after all."""
    done, early = 0, 0.0
    while done < requests:
        done += load.run(url, 8, 5)["requests"]
        if not early and done >= requests / 10:
            early = memory_mb(pid, "VmRSS")
    return {"requests": done, "mb_early": early, "mb_late": memory_mb(pid, "VmRSS")}


def small_run(folder: Path, steps: int) -> Run:
    """A little residual model, which CTranslate2 can compute, of the built-in corpus."""
    config = demo_config(folder, "euler", 1)
    write_corpus(Path(config.data.dir), train=10_000, valid=100, test=300, seed=1)
    updates = {"max_steps": steps, "valid_every": steps, "warmup": steps // 3}
    config = config.model_copy(update={"train": config.train.model_copy(update=updates)})
    return Run.load(train(config, console=Console(stderr=True, quiet=True)).run)


def command_of(
    name: str, run: Run, exports: Path, folder: Path, chosen: argparse.Namespace
) -> list[str]:
    """How a server is started; Absent or InputError says why it cannot.

    LibreTranslate gets the fp32 weights, and chooses the precision of their products by itself.
    """
    system, _, kind = name.partition(" ")
    model = exports / name.replace(" ", "-")
    if system == "kutta":
        if kind == "PyTorch":
            model = run.path.resolve()
        else:
            export_run(run, model, kind)
        return [sys.executable, "-m", "kutta", "serve", str(model), "--port", "0"]
    export_ctranslate2(run, model, "int8" if kind == "int8" else "float32")
    if system == "CTranslate2":
        script = INSIDE / "serve_ctranslate2.py"
        return [sys.executable, str(script), str(run.path.resolve()), str(model)]
    return libretranslate(run, model, folder, chosen.envs, not chosen.no_install)


def table_of(results: dict[str, Any]) -> Table:
    table = Table("server", "clients", "requests/s", "p50 ms", "p99 ms", "not 200", "MB")
    for name, found in results.items():
        for row in found["rows"]:
            rate = f"{row['requests'] / row['seconds']:.1f}"
            times = (f"{row['p50']:.1f}", f"{row['p99']:.1f}")
            failed = str(row["refused"] + row["broken"])
            table.add_row(name, str(row["clients"]), rate, *times, failed, f"{row['mb']:.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, help="a trained run; else a small one is made")
    parser.add_argument("--text", type=Path, help="source sentences, one a line; needed with RUN")
    parser.add_argument("--quick", action="store_true", help="two minutes at most")
    parser.add_argument("--requests", type=int, default=10_000, help="for the growth of memory")
    parser.add_argument(
        "--envs", type=Path, default=DEFAULT, metavar="FOLDER", help="where peers are installed"
    )
    parser.add_argument("--no-install", action="store_true", help="leave out what is not installed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    chosen = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed; install it (Debian: apt install wrk).")
    if (chosen.run is None) != (chosen.text is None):
        raise SystemExit("RUN and --text go together: give both, or neither.")
    seconds, requests = (3, 300) if chosen.quick else (20, chosen.requests)
    console, results = Console(), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="kutta-serve-") as place:
        folder = Path(place)
        run = Run.load(chosen.run) if chosen.run else small_run(folder, 30 if chosen.quick else 500)
        data, exports = run.config.data, folder / "exports"
        text = chosen.text or Path(data.dir) / f"test.{data.source}"
        lines = [line for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
        load = Load(lines, data.source, data.target, folder)
        for name in SERVERS:
            try:
                command = command_of(name, run, exports, folder, chosen)
                with serving(command, folder) as (url, pid):
                    results[name] = {"rows": measure(url, pid, load, seconds)}
                    if name == WATCHED:
                        results[name]["growth"] = growth(url, pid, load, requests)
            except (Absent, InputError) as reason:
                console.print(f"{name}: absent, {reason}")
    console.print(table_of(results))
    if WATCHED not in results:
        raise SystemExit(1)
    grown = results[WATCHED]["growth"]
    console.print(
        f"Memory of {WATCHED}: {grown['mb_early']:.0f} MB after a tenth of {grown['requests']:,} "
        f"requests, {grown['mb_late']:.0f} MB after all."
    )
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

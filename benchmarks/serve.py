"""Requests a second, their times and the memory of `kutta serve`, measured with wrk on loopback.

Beside it is CTranslate2 with the same weights behind the same server. LibreTranslate installs from
the registry, but it downloads a model that splits sentences when it starts, so it is not measured.
`--help` says what can be chosen.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from trainee import memory_mb

from kutta.demo.demo import demo_config
from kutta.demo.grammar import write_corpus
from kutta.errors import InputError
from kutta.export.ctranslate2 import export_ctranslate2
from kutta.runs import Run
from kutta.training.run import train

CLIENTS = (1, 8, 64)
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
def serving(command: list[str]) -> Iterator[tuple[str, int]]:
    """The address and the process of a server, which is stopped afterwards."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        try:
            said: list[str] = []
            for line in process.stderr:
                said.append(line)
                if found := re.search(r"http://127\S+", line):
                    yield found[0], process.pid
                    return
            raise SystemExit(f"The server did not start: {''.join(said[-1:]).strip()}")
        finally:
            process.terminate()
            process.wait(60)


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
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    chosen = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed; install it (Debian: apt install wrk).")
    if (chosen.run is None) != (chosen.text is None):
        raise SystemExit("RUN and --text go together: give both, or neither.")
    seconds, requests = (3, 300) if chosen.quick else (20, chosen.requests)
    console, results = Console(), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="kutta-serve-") as name:
        folder = Path(name)
        run = Run.load(chosen.run) if chosen.run else small_run(folder, 30 if chosen.quick else 500)
        data, export = run.config.data, folder / "ctranslate2"
        text = chosen.text or Path(data.dir) / f"test.{data.source}"
        lines = [line for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
        load = Load(lines, data.source, data.target, folder)
        python, inside = sys.executable, Path(__file__).parent / "inside" / "serve_ctranslate2.py"
        servers = {
            "kutta": [python, "-m", "kutta", "serve", str(run.path), "--port", "0"],
            "CTranslate2": [python, str(inside), str(run.path), str(export)],
        }
        try:
            export_ctranslate2(run, export)
        except InputError as error:
            console.print(f"CTranslate2: absent, {error}")
            del servers["CTranslate2"]
        for server, command in servers.items():
            with serving(command) as (url, pid):
                results[server] = {"rows": measure(url, pid, load, seconds)}
                if server == "kutta":
                    results[server]["growth"] = growth(url, pid, load, requests)
    console.print(table_of(results))
    grown = results["kutta"]["growth"]
    console.print(
        f"Memory of kutta: {grown['mb_early']:.0f} MB after a tenth of {grown['requests']:,} "
        f"requests, {grown['mb_late']:.0f} MB after all."
    )
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

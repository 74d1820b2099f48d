"""The tables of docs/reliability.md, from the reports of `make torture` and of the peers."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
# The parts of the suite: what was tried, and what would be wrong.
PARTS = {
    "kills": ("kills and losses of power", "something is lost, or the result differs"),
    "errors": ("failing writes (ENOSPC, EIO, EROFS)", "the same, or a traceback"),
    "flips": ("flipped bits", "another result without a word"),
    "directories": ("hostile model directories", "a file outside is opened, or memory or time"),
    "readers": ("mutated inputs of readers", "an exception, a crash, 10 seconds"),
    "guided": ("inputs chosen by atheris", "the same"),
    "text": ("lines of Unicode translated", "not one line for each"),
}


def tables() -> dict[str, str]:
    """The generated parts of the page, by name."""
    torture = json.loads((RESULTS / "torture.json").read_text(encoding="utf-8"))
    peers = json.loads((RESULTS / "reliability.json").read_text(encoding="utf-8"))
    return {"torture": tried(torture), "kills": commands(torture), "peers": compared(peers)}


def _table(*rows: tuple[str, ...]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def tried(report: dict[str, Any]) -> str:
    """How much of each part was tried, and how much was wrong."""
    rows = [("tried", "number", "would be wrong", "was wrong"), ("---", "---:", "---", "---:")]
    for name, part in report["parts"].items():
        what, wrong = PARTS[name]
        rows.append((what, f"{part['tried']:,}", wrong, str(len(part["problems"]))))
    minutes = sum(part["seconds"] for part in report["parts"].values()) / 60
    said = f"Seed {report['seed']}, {minutes:.0f} minutes, {report['machine']}."
    return f"{said}\n\n{_table(*rows)}"


def commands(report: dict[str, Any]) -> str:
    """How often each command was killed, and how often its disk failed."""
    killed, failed = (report["parts"][name]["groups"] for name in ("kills", "errors"))
    rows = [("command", "kills", "failing writes"), ("---", "---:", "---:")]
    for name in sorted(killed.keys() | failed.keys()):
        rows.append((f"`{name}`", str(killed.get(name, 0)), str(failed.get(name, 0))))
    return _table(*rows)


def compared(peers: dict[str, Any]) -> str:
    """What toolkits did after kills and with flipped bits."""
    head = ("toolkit", "repeats itself", "killed, then resumed", "a flipped bit in the model")
    rows = [head, ("---",) * len(head)]
    for name, found in peers.items():
        title = f"{name} {found['version']}".replace("Kutta this tree", "Kutta")
        if "absent" in found:
            rows.append((title, "", f"not tried: {found['absent']}", ""))
            continue
        repeats = "yes" if found["repeats itself"] else "no"
        rows.append((title, repeats, _counts(found["kills"]), _counts(found["flips"])))
    return _table(*rows)


def _counts(outcomes: dict[str, int]) -> str:
    ordered = sorted(outcomes.items(), key=lambda item: -item[1])
    return "; ".join(f"{count} x {what}" for what, count in ordered if what != "ended before")

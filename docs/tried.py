"""The tables of docs/reliability.md, from the reports of `make torture` and of the peers."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
# The parts of the suite: what was tried, and what would be wrong.
PARTS = {
    "kills": (
        "kills, writes cut in half, losses of power",
        "something is lost, or the result differs",
    ),
    "errors": ("failing writes (ENOSPC, EIO, EROFS)", "the same, or a traceback"),
    "flips": ("flipped bits", "another result without a word"),
    "directories": ("hostile model directories", "a file outside is opened, or memory or time"),
    "readers": ("mutated inputs of readers", "an exception, a crash, 10 seconds"),
    "guided": ("inputs chosen by atheris", "the same"),
    "text": ("lines of Unicode translated", "not one line for each"),
}


def tables() -> dict[str, str]:
    """The generated parts of the page, by name."""
    files = sorted(RESULTS.glob("torture*.json"))
    reports = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    peers = json.loads((RESULTS / "reliability.json").read_text(encoding="utf-8"))
    return {"torture": tried(reports), "kills": commands(reports), "peers": compared(peers)}


def _table(*rows: tuple[str, ...]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _of(reports: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """A part in all reports that have it."""
    return [report["parts"][name] for report in reports if name in report["parts"]]


def tried(reports: list[dict[str, Any]]) -> str:
    """How much of each part was tried, and how much was wrong."""
    rows = [("tried", "number", "would be wrong", "was wrong"), ("---", "---:", "---", "---:")]
    minutes = 0.0
    for name, (what, wrong) in PARTS.items():
        found = _of(reports, name)
        number, problems = (sum(part["tried"] for part in found), [p["problems"] for p in found])
        rows.append((what, f"{number:,}", wrong, str(sum(map(len, problems)))))
        minutes += sum(part["seconds"] for part in found) / 60
    seeds = ", ".join(str(report["seed"]) for report in reports)
    said = (
        f"Seeds {seeds}; {minutes:.0f} minutes in all on a busy machine; {reports[0]['machine']}."
    )
    return f"{said}\n\n{_table(*rows)}"


def commands(reports: list[dict[str, Any]]) -> str:
    """How often each command was killed, and how often its disk failed."""
    counts = [Counter[str](), Counter[str]()]
    for count, name in zip(counts, ("kills", "errors"), strict=True):
        for part in _of(reports, name):
            count.update(part["groups"])
    rows = [("command", "kills", "failing writes"), ("---", "---:", "---:")]
    for name in sorted(counts[0].keys() | counts[1].keys()):
        rows.append((f"`{name}`", str(counts[0][name]), str(counts[1][name])))
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

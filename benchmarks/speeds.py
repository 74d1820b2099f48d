"""From what was measured of decoding to rows, and to the figures that have targets."""

from collections.abc import Callable, Iterable, Iterator
from statistics import median, quantiles
from typing import Any

from decoders.kutta import BEFORE, RUNTIME, SHORTLIST, TORCH
from figures import Figure, Row
from translating import BEAMS, Entrant

Kind = tuple[str, str, str]  # program, precision, option
THEIRS = "CTranslate2"
BASE = "base"  # the size that targets are for


def row_of(entrant: Entrant) -> Row:
    """All that is known of one way of decoding; medians over rounds."""
    way = entrant.way
    waits = [1000 * second for turn in entrant.waits.values() for second in turn]
    rates = {beam: [rates[n] for n in entrant.whole] for beam, rates in entrant.rates.items()}
    return {
        "program": way.program,
        "version": entrant.version,
        "size": way.case.size,
        "method": way.case.method,
        "precision": way.precision,
        "option": way.option,
        "workers": way.workers,
        "tokens_per_second": {str(beam): round(median(r), 1) for beam, r in rates.items()},
        "spread": {str(beam): [round(min(r), 1), round(max(r), 1)] for beam, r in rates.items()},
        "batch": {str(beam): setting for beam, setting in entrant.settings.items()},
        "latency_ms": round(median(waits), 1),
        "latency_p95_ms": round(percentile_95(waits), 1),
        "peak_mb": round(entrant.peak_mb),
        "startup_s": round(median(entrant.startups), 2),
        "disk_mb": round(disk_mb(entrant), 1),
        "rounds": len(entrant.whole),
    }


def percentile_95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def disk_mb(entrant: Entrant) -> float:
    """The size of the files that it reads of the model."""
    files = (file for file in entrant.job.folder.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files) / 1e6


def measured(entrants: Iterable[Entrant]) -> list[Entrant]:
    return [entrant for entrant in entrants if entrant.whole]


def by_kind(entrants: Iterable[Entrant]) -> dict[tuple[str, ...], list[Entrant]]:
    """The measured arrangements of workers of every other choice."""
    kinds: dict[tuple[str, ...], list[Entrant]] = {}
    for entrant in measured(entrants):
        kinds.setdefault(entrant.way.kind, []).append(entrant)
    return kinds


def best(entrants: list[Entrant], beam: int = BEAMS[0]) -> Entrant:
    """The arrangement that translates the most."""
    return max(entrants, key=lambda e: median(e.rates[beam][n] for n in e.whole))


def quickest(entrants: list[Entrant]) -> Entrant:
    """The arrangement that answers soonest."""
    return min(entrants, key=lambda e: median(x for turn in e.waits.values() for x in turn))


def fastest(entrants: Iterable[Entrant]) -> list[Row]:
    """A row for each choice but the workers: each figure of the arrangement that is best at it.

    Memory, start and disk are those of the arrangement that translates the most.
    """
    rows: list[Row] = []
    for group in by_kind(entrants).values():
        row, soon = row_of(best(group)), row_of(quickest(group))
        for beam in map(str, BEAMS):
            each = row_of(best(group, int(beam)))
            for key in ("tokens_per_second", "spread", "batch"):
                row[key][beam] = each[key][beam]
        latency = {key: soon[key] for key in ("latency_ms", "latency_p95_ms")}
        rows.append(row | latency | {"latency_workers": soon["workers"]})
    return rows


def times_faster(ours: Entrant, theirs: Entrant, beam: int) -> float:
    """The median of the ratio of rates within a round: both then saw the same minute."""
    common = set(ours.whole) & set(theirs.whole)
    return median(ours.rates[beam][n] / theirs.rates[beam][n] for n in common)


def times_slower(ours: Entrant, theirs: Entrant) -> float:
    """The median over rounds of the ratio of median latencies within a round."""
    common = set(ours.whole) & set(theirs.whole)
    return median(median(ours.waits[n]) / median(theirs.waits[n]) for n in common)


class Sides:
    """The measured ways of one size, to be compared."""

    def __init__(self, size: str, entrants: Iterable[Entrant]) -> None:
        self.size, self.kinds = size, by_kind(entrants)
        self.missing: list[str] = []

    def of(self, program: str, precision: str, option: str = "", method: str = "residual") -> Any:
        return self.kinds.get((self.size, method, program, precision, option), [])

    def figure(
        self,
        name: str,
        ours: list[Entrant],
        theirs: list[Entrant],
        value: Callable[[list[Entrant], list[Entrant]], float],
        **limit: float,
    ) -> Iterator[Figure]:
        """A figure where both sides were measured in some round; the limits are for base size."""
        both = {n for e in ours for n in e.whole} & {n for e in theirs for n in e.whole}
        if both:
            yield Figure(self.size, name, value(ours, theirs), **limit if self.is_base else {})
        elif self.is_base and limit:
            self.missing.append(name)

    @property
    def is_base(self) -> bool:
        return self.size == BASE


def speed(beam: int) -> Callable[[list[Entrant], list[Entrant]], float]:
    return lambda ours, theirs: times_faster(best(ours, beam), best(theirs, beam), beam)


def slowness(beam: int) -> Callable[[list[Entrant], list[Entrant]], float]:
    return lambda ours, theirs: 1 / speed(beam)(ours, theirs)


def latency(ours: list[Entrant], theirs: list[Entrant]) -> float:
    return times_slower(quickest(ours), quickest(theirs))


def memory(ours: list[Entrant], theirs: list[Entrant]) -> float:
    return best(ours).peak_mb / best(theirs).peak_mb


def figures_of(size: str, entrants: Iterable[Entrant]) -> tuple[list[Figure], list[str]]:
    """How Kutta stands to its targets at one size, and the targets that were not measured."""
    sides = Sides(size, entrants)
    return list(_figures(sides)), sides.missing


def _figures(sides: Sides) -> Iterator[Figure]:
    for precision, option, least in (
        ("fp32", "", 1.0),
        ("int8", "", 1.3),
        ("int8", SHORTLIST, 2.0),
    ):
        ours, theirs = sides.of(RUNTIME, precision, option), sides.of(THEIRS, precision)
        label = f"{precision}{f' with {option}' if option else ''}"
        for beam in BEAMS:
            name = f"{label}, beam {beam}: speed / {THEIRS}"
            yield from sides.figure(name, ours, theirs, speed(beam), at_least=least)
    for precision, most in (("fp32", {}), ("int8", {"at_most": 0.8})):
        both = sides.of(RUNTIME, precision), sides.of(THEIRS, precision)
        yield from sides.figure(f"{precision}: latency / {THEIRS}", *both, latency, **most)
        yield from sides.figure(f"{precision}: memory / {THEIRS}", *both, memory, at_most=1.0)
    for method, most in (("rk2", 1.15), ("rk4", 1.35)):
        # In the runtime; where there is none, in PyTorch, so that something is known.
        kinds = [k for k in ((RUNTIME, "int8"), (TORCH, "fp32")) if sides.of(*k, method=method)]
        program, precision = (kinds or [(RUNTIME, "int8")])[0]
        pair = sides.of(program, precision, method=method), sides.of(program, precision)
        name = f"{method}: time / residual, {program} {precision}"
        yield from sides.figure(name, *pair, slowness(BEAMS[0]), at_most=most)
    for beam in BEAMS:
        pair = sides.of(TORCH, "fp32"), sides.of(TORCH, "fp32", BEFORE)
        name = f"torch, beam {beam}: speed / before"
        yield from sides.figure(name, *pair, speed(beam), at_least=1.7)

"""From what was measured to rows (one for each toolkit, size and method) and targets."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from contest import Entrant, running
from corpus import Corpus
from costmodel import Size as Model
from peers.toolkit import Size

from kutta.model.arithmetic import cost_of

Row = dict[str, Any]
SLOWER = 1.05  # a method may take so much more time than its arithmetic says
FASTER = {"tiny": 1.5, "base": 1.15}  # than the fastest peer
NOT_SLOWER = 0.97  # than an earlier version of Kutta: what the noise of a machine allows
MARKS = 4  # words of Kutta's vocabulary that are not in the text


@dataclass(frozen=True)
class Figure:
    """One measured number; `at_least` or `at_most` make it a target."""

    case: str
    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:,g}"

    @property
    def verdict(self) -> str:
        if not self.target:
            return ""
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return "ok" if low <= self.value <= high else "MISSED"


def operations_per_token(size: Size, method: str, corpus: Corpus) -> float:
    """Operations of an update's matrix products for each target token and its share of the source.

    Two forward and four backward for each parameter of a product; what is computed again in the
    backward pass counts once, and attention's own products do not count.
    """
    layers, solver, words = size.layers, method.partition("+")[0], corpus.words + MARKS
    model = Model(size.d_model, size.ffn, size.heads, layers, layers, solver, vocabulary=words)
    with torch.device("meta"):  # sizes without numbers
        cost = cost_of(model.model())
    return 6 * (cost.per_source_token * corpus.source_per_target + cost.per_target_token)


def row_of(entrant: Entrant, gemm: dict[int, float], corpus: Corpus) -> Row:
    """All that is known of one way of training; medians over rounds."""
    case, rates = entrant.case, list(entrant.rates.values())
    operations = operations_per_token(case.size, case.method, corpus)
    shares = [rate * operations / (gemm[n] * 1e9) for n, rate in entrant.rates.items()]
    return {
        "toolkit": entrant.toolkit.name,
        "version": entrant.toolkit.version,
        "size": case.size.name,
        "method": case.method,
        "split": str(case.division),
        "tokens_per_second": round(median(rates), 1),
        "spread": [round(min(rates), 1), round(max(rates), 1)],
        "peak_mb": round(entrant.peak_mb),
        "gemm_share": round(median(shares), 3),
        "startup_s": round(median(entrant.startups), 1),
        "tokens_per_update": round(entrant.tokens_per_update),
        "rounds": len(rates),
    }


def fastest(rows: Iterable[Row]) -> list[Row]:
    """Of each toolkit, size and method, the division that was fastest."""
    best: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        key = row["toolkit"], row["size"], row["method"]
        if key not in best or row["tokens_per_second"] > best[key]["tokens_per_second"]:
            best[key] = row
    return list(best.values())


def times_faster(ours: Entrant, theirs: Entrant) -> float:
    """The median of the ratio of rates within a round: both then saw the same minute."""
    common = ours.rates.keys() & theirs.rates.keys()
    return median(ours.rates[number] / theirs.rates[number] for number in common)


def time_per_arithmetic(euler: Entrant, method: Entrant, corpus: Corpus) -> float:
    """The time of a method against Euler's over the same batches, over its arithmetic's."""
    size = euler.case.size
    more, once = (operations_per_token(size, e.case.method, corpus) for e in (method, euler))
    return times_faster(euler, method) / (more / once)


def usual_ways(entrants: list[Entrant]) -> dict[str, Entrant]:
    """For each method the way in which the toolkit trains by itself; where absent, the fastest."""

    def rank(entrant: Entrant) -> tuple[bool, float]:
        case = entrant.case
        usual = case.division == entrant.toolkit.usual.get(case.size.name)
        return usual, median(entrant.rates.values())

    return {entrant.case.method: entrant for entrant in sorted(entrants, key=rank)}


def finalists(entrants: list[Entrant]) -> list[Entrant]:
    """Kutta's usual way by each method, and of every peer the way that was fastest so far."""
    ours = [e for e in entrants if e.toolkit.name == "Kutta"]
    usual = {method: e for method, e in usual_ways(ours).items() if "+" not in method}
    best: dict[str, Entrant] = {}
    for entrant in sorted(entrants, key=lambda e: median(e.rates.values())):
        if entrant not in ours:
            best[entrant.toolkit.name] = entrant
    return [*usual.values(), *best.values()]


def own_figures(entrants: list[Entrant], corpus: Corpus) -> Iterator[Figure]:
    """How Kutta's methods stand to Euler, and its options to training without."""
    ways = {entrant.case.method: entrant for entrant in running(entrants)}
    for method, way in ways.items():
        solver, _, option = method.partition("+")
        plain, size = ways.get(solver if option else "euler"), way.case.size.name
        if plain is None or plain is way:
            continue
        if option:
            yield Figure(size, f"{method}: speed / without", times_faster(way, plain))
        else:
            cost = time_per_arithmetic(plain, way, corpus)
            limit = SLOWER if size == "base" else None
            yield Figure(size, f"{method} time_per_arithmetic", cost, at_most=limit)


def version_figures(now: Entrant, before: Entrant) -> Iterator[Figure]:
    """How this version stands to an earlier one; both divide an update in the same way."""
    size = now.case.size.name
    yield Figure(size, f"speed / {before.toolkit.name}", times_faster(now, before), NOT_SLOWER)
    yield Figure(size, f"peak_mb / {before.toolkit.name}", now.peak_mb / before.peak_mb)


def figures_of(
    size: Size, entrants: list[Entrant], corpus: Corpus, gemm: dict[int, float]
) -> Iterator[Figure]:
    """How Kutta stands against its peers and its targets at one size."""
    yield Figure(size.name, "gemm_gflops", median(gemm.values()))
    measured = running(entrants)
    ours = [e for e in measured if e.toolkit.name == "Kutta"]
    kutta = usual_ways(ours)
    peers = [e for e in measured if e.toolkit.name != "Kutta"]
    if "euler" not in kutta:
        return
    euler, base = kutta["euler"], size.name == "base"  # memory and share matter there only
    share = row_of(euler, gemm, corpus)["gemm_share"]
    yield Figure(size.name, "gemm_share", share, at_least=0.75 if base else None)
    # The fastest peer in one process, as most people start it, and the fastest of all.
    # A single round says little where others have had many.
    shared = {e.name: len(e.rates.keys() & euler.rates.keys()) for e in peers}
    rivals = [e for e in peers if 2 * shared[e.name] >= max(shared.values())]
    single = [e for e in rivals if e.case.division.processes == 1]
    best = [min(group, key=lambda e: times_faster(euler, e)) for group in (single, rivals) if group]
    for name, peer in {peer.name: peer for peer in best}.items():
        times = times_faster(euler, peer)
        yield Figure(size.name, f"speed / {name}", times, at_least=FASTER[size.name])
    for peer in sorted(peers, key=lambda e: e.peak_mb)[:1]:
        for way in (e for e in ours if e.case.method == "euler"):
            name, part = f"{way.case.division}: peak_mb / {peer.name}", way.peak_mb / peer.peak_mb
            yield Figure(size.name, name, part, at_most=1.0 if base and way is euler else None)
    ways = [kutta[method] for method in sorted(kutta) if method != "rk4+recompute"]
    yield from own_figures(ways, corpus)
    if "rk4+recompute" in kutta:
        part, limit = kutta["rk4+recompute"].peak_mb / euler.peak_mb, 1.25 if base else None
        yield Figure(size.name, "rk4+recompute peak_mb / euler", part, at_most=limit)

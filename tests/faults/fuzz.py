"""Readers and files that nobody has written: mutated ones, reproducible from a seed."""

import hashlib
import json
import random
import time
from pathlib import Path

from tests.faults.children import in_child
from tests.faults.readers import Reader, outcome, readers
from tests.faults.tally import Tally

AT_ONCE = 400  # inputs of one child
TOO_SLOW = 10.0  # seconds for one small input
TOO_MUCH = 600  # MB that a child may have more than its parent
# What readers look for, and what they should survive.
WORDS = (
    *(b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\t", b"\xc0\xaf", b"\xed\xa0\x80"),
    *(b"9" * 30, b"-1", b"1e999", b"NaN", b"null", b"true", b'"', b"'", b"\\", b"\\u0000", b"#"),
    *(
        b"[" * 40,
        b"{" * 40,
        b'{"a":' * 40,
        b"[" * 5000,
        b"]",
        b"}",
        b"..",
        b"/",
        b"../../",
        b"=",
        b"a.b.c",
    ),
    *(b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08", b"\xff" * 8, b"\x7f\xff\xff\xff", b"\0" * 16),
    *(b"<!ENTITY a 'b'>", b"<tu>", b"</seg>", b"&a;", b"<![CDATA[", b"xml:lang", b"__class__"),
)


def mutated(seeds: tuple[bytes, ...], draw: random.Random) -> bytes:
    """A seed after some changes, or anything at all."""
    if draw.random() < 0.05:
        return draw.randbytes(draw.randint(0, 200))
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((1, 1, 2, 3, 8))):
        start = draw.randint(0, len(data))
        stop = min(len(data), start + draw.choice((0, 1, 4, 40)))
        match draw.randint(0, 7):
            case 0 if data:
                data[start % len(data)] ^= 1 << draw.randint(0, 7)
            case 1:
                data[start:stop] = draw.randbytes(stop - start)
            case 2:
                del data[start:stop]
            case 3:
                data[start:start] = draw.choice(WORDS)
            case 4:
                data[start:stop] = draw.choice(WORDS)
            case 5:
                data[start:start] = data[start:stop] * draw.choice((1, 2, 50))
            case 6:
                del data[start:]
            case _:
                other = draw.choice(seeds)
                cut = draw.randint(0, len(other))
                data[start:] = other[cut : cut + 500]
    return bytes(data)


def try_readers(home: Path, seed: str, tally: Tally) -> None:
    """Give inputs to all readers in turn until the time is over."""
    every, number = readers(home), 0
    while not tally.is_over():
        for name, reader in every.items():
            _try_some(home, name, reader, f"{seed} {name} {number}", tally)
            if tally.is_over():
                return
        number += 1


def _try_some(home: Path, name: str, reader: Reader, seed: str, tally: Tally) -> None:
    """Many inputs in a child; what it was at is in a file if it dies."""
    results, folder = home / "fuzz.json", home / "fuzz"
    folder.mkdir(exist_ok=True)
    results.unlink(missing_ok=True)

    def act() -> None:
        draw, counts, problems = random.Random(seed), {"read": 0, "refused": 0}, list[str]()
        for number in range(AT_ONCE):
            data, start = mutated(reader.seeds, draw), time.perf_counter()
            (folder / "last").write_bytes(data)
            found = outcome(reader, data, folder)
            if time.perf_counter() - start > TOO_SLOW:
                found = "it took too long"
            if found in counts:
                counts[found] += 1
            else:
                problems.append(f"input {number} of {seed!r} ({_digest(data)}): {found}")
        results.write_text(json.dumps([counts, problems]))

    ended = in_child(act, home)
    if ended.code or not results.is_file():
        kept = home / f"crash-{name}"
        kept.write_bytes((folder / "last").read_bytes())
        tally.add(name, f"exit code {ended.code}: {ended.err[-300:]}", f"{seed!r}, input in {kept}")
        return
    counts, problems = json.loads(results.read_text())
    tally.outcomes.update(counts)
    tally.add(name, count=sum(counts.values()))
    for problem in problems:
        tally.add(name, problem)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]

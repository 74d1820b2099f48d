"""The readers under atheris, which looks for inputs that reach new lines of the code.

python -m tests.faults.guided HOME SECONDS SEED SCRATCH

The first byte of an input chooses the reader. An exception that no reader may raise ends this.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kutta"]):
    from tests.faults.readers import outcome, readers


def main() -> None:
    home, scratch = Path(sys.argv[1]), Path(sys.argv[4])
    every = list(readers(home).items())
    seeds = scratch / "seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    for number, (_, reader) in enumerate(every):
        for i, seed in enumerate(reader.seeds):
            (seeds / f"{number}-{i}").write_bytes(bytes([number]) + seed)

    def one(data: bytes) -> None:
        if data:
            name, reader = every[data[0] % len(every)]
            found = outcome(reader, data[1:], scratch)
            if found not in ("read", "refused"):
                raise AssertionError(f"{name}: {found}")

    options = [f"-max_total_time={sys.argv[2]}", f"-seed={sys.argv[3]}", "-max_len=20000"]
    options += [f"-artifact_prefix={scratch}/", "-timeout=20", "-rss_limit_mb=4000", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *options, str(seeds)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

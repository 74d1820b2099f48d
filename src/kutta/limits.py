"""Every limit on input, and the memory of this machine.

A limit is far above what real work needs, and low enough that input of any kind, made by mistake or
with intent, is refused in one sentence before it takes memory or time.
"""

from pathlib import Path

# JSON and TOML
DOCUMENT_BYTES = 4 << 20  # of a file: the largest of ours, a plan, has some hundred kB
DEPTH = 32  # tables in tables; a tableau in a config has five
DIGITS = 19  # of an integer: those of 64 bits
RECORD_BYTES = 1 << 16  # of a line of metrics.jsonl

# Names and texts in settings
TEXT = 4096  # characters, as many as a path may have
LANGUAGE = 64  # characters of the extension of a file

# Text
LINE_BYTES = 4 << 20  # of a line: a novel has one or two million
CHUNK_BYTES = 16 << 20  # of the lines that are read before they are worked on

# Settings
COUNT = 1_000_000_000  # any number of things that no other limit applies to
SEED = (1 << 63) - 1
WIDTH = 1 << 16  # d_model, heads
INNER_WIDTH = 1 << 18  # ffn
LAYERS = 1024  # of a stack; the deepest published have 1,000
STAGES = 16  # of a tableau
FRACTION = 64  # characters of a number in a tableau
VOCABULARY = 4_000_000
POSITIONS = 4096  # relative positions that attention tells apart
BATCH_TOKENS = 1 << 24
PROCESSES = 4096
THREADS = 1024  # and lanes
BEAM = 1024
OUTPUT_TOKENS = 16_384  # decode.min_length, decode.max_length
ROWS_AT_ONCE = 8192  # hypotheses of a batch: rows x beam

_CONTROL_GROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Available bytes of this machine, or of the container of this process; 0 if not known."""
    free = proc_bytes(Path("/proc/meminfo"), "MemAvailable", "SwapFree")
    try:
        most = int((_CONTROL_GROUP / "memory.max").read_text())
        lines = (_CONTROL_GROUP / "memory.stat").read_text().splitlines()
        used = dict(line.split() for line in lines)
        return min(free, max(0, most - int(used["anon"])))  # other pages can be reclaimed
    except (OSError, ValueError, KeyError):  # no container, or one without a limit
        return free


def proc_bytes(file: Path, *names: str) -> int:
    """The sum of these lines of a file under /proc, which has them in kB; 0 without the file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.partition(":")[0] in names)

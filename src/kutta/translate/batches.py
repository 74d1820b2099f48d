"""Encoded lines and their batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from kutta.config import DecodeConfig
from kutta.limits import ROWS_AT_ONCE

CHUNK_TOKENS = 1 << 19  # of the lines that are read before they are translated
SEGMENT = 1 << 40  # more than there are lines


@dataclass(frozen=True)
class Source:
    """A line, or a segment of one: its number in the input, from 0, and its ids without EOS.

    Segments of a line have different numbers: SEGMENT is added for each after the first. `joint` is
    what stands before the translation of a segment.
    """

    number: int
    ids: list[int]
    joint: str = ""


def within(lines: Iterator[list[Source]], count: int) -> Iterator[list[Source]]:
    """The next `count` lines of a stream, or fewer if they have CHUNK_TOKENS."""
    tokens = 0
    for line in islice(lines, count):
        yield line
        tokens += sum(len(source.ids) for source in line)
        if tokens > CHUNK_TOKENS:
            return


def count_lines(sources: Sequence[Source]) -> int:
    """The number of lines that begin here."""
    return sum(source.number < SEGMENT for source in sources)


def batches(lines: list[Source], decode: DecodeConfig) -> Iterator[list[Source]]:
    """Batches of similar lengths: rows x (longest + EOS) <= batch_tokens, or a single row.

    Wide beams have fewer rows: the memory of a step is that of its hypotheses.
    """
    batch: list[Source] = []
    most = max(1, ROWS_AT_ONCE // decode.beam)
    for line in sorted(lines, key=lambda line: -len(line.ids)):
        # The longest come first, so the first line of a batch determines its width.
        tokens = (len(batch) + 1) * (len(batch[0].ids) + 1) if batch else 0
        if tokens > decode.batch_tokens or len(batch) >= most:
            yield batch
            batch = []
        batch.append(line)
    if batch:
        yield batch

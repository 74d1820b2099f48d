"""Text of all kinds through `kutta translate`: one line out for each line in."""

import random
import unicodedata
from pathlib import Path

from tests.faults.children import in_child, run
from tests.faults.tally import Tally

AT_ONCE = 60  # lines of one command
# What is a line break, a space, a mark or a piece elsewhere.
PARTS = (
    *("\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "\t", "\xa0"),
    *("\u200b", "\u200d", "\u202e", "\u2066", "\ufeff", "\ufffe", "\uffff", "\U0010ffff", "\ue000"),
    *("a" + "\u0301" * 60, "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea"),
    *("\u2581", "\u2581ba", "<s>", "</s>", "<unk>", "<pad>", "<0x0A>", "@@", "@@ ", "\\n", "|||"),
    *("ba", "be", "do", " ", "  ", ".", "。", "؟", "\u1100\u1161\u11a8", "ﷺ", "ß", "İ", "ǆ"),
    *("नमस्ते", "สวัสดี", "שלום", "مرحبا", "你好", "こんにちは", "Привет", "\U000e0041", "\u3000"),
)


def line(draw: random.Random) -> str:
    """Anything but NUL, a newline and halves of surrogate pairs."""
    parts: list[str] = []
    for _ in range(draw.choice((0, 1, 1, 3, 10))):
        if draw.random() < 0.6:
            parts.append(draw.choice(PARTS))
        else:
            code = draw.choice((draw.randint(1, 0x24F), draw.randint(1, 0x10FFFF)))
            character = chr(code)
            if character != "\n" and unicodedata.category(character) != "Cs":
                parts.append(character)
    return "".join(parts)


def try_text(home: Path, draw: random.Random, tally: Tally) -> None:
    """Translate lines of all kinds until the time is over."""
    ways = {
        "run": ("trained", ("translate", "run")),
        "exported model": ("exported", ("translate", "exported")),
        "greedy, JSON": ("trained", ("translate", "run", "--beam", "1", "--json")),
        "sampled": ("trained", ("translate", "run", "--sample")),
    }
    while True:
        for name, (folder, words) in ways.items():
            if tally.is_over():
                return
            lines = [line(draw) for _ in range(AT_ONCE)]
            data = "\n".join(lines).encode() + b"\n"
            ended = in_child(run(words, home / folder), home, stdin=data)
            problem, count = ended.problem((0,)), ended.out.count(b"\n")
            if not problem and count != AT_ONCE:
                problem = f"{count} lines for {AT_ONCE}"
            try:
                ended.out.decode()
            except UnicodeDecodeError as error:
                problem = problem or f"the output is not UTF-8: {error}"
            tally.outcomes["translated"] += AT_ONCE
            tally.add(name, problem, f"lines {lines}"[:2000] if problem else "", AT_ONCE)
